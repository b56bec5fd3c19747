#include "train/data/text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "train/chat/line_encoder.h"
#include "train/data/token_stream.h"

namespace trainyard {
namespace {

class ByteStream final : public TokenStream {
 public:
  explicit ByteStream(InputFile file) : file_(std::move(file)) {}

  int64_t num_tokens() const override { return int64_t(file_.size()); }
  int64_t vocab() const override { return kByteVocabulary; }
  IndexDType dtype() const override { return IndexDType::kUint8; }

  absl::Status Read(int64_t first, std::span<int32_t> out) const override {
    std::vector<uint8_t> bytes(out.size());
    RETURN_IF_ERROR(file_.ReadAt(uint64_t(first), bytes.data(), bytes.size()));
    for (size_t i = 0; i < out.size(); ++i) out[i] = bytes[i];
    return absl::OkStatus();
  }

 private:
  const InputFile file_;
};

// The tokens of a text, in memory.
class EncodedStream final : public TokenStream {
 public:
  EncodedStream(std::vector<int32_t> ids, int64_t vocab) : ids_(std::move(ids)), vocab_(vocab) {}

  int64_t num_tokens() const override { return int64_t(ids_.size()); }
  int64_t vocab() const override { return vocab_; }
  IndexDType dtype() const override { return IndexDType::kInt32; }

  absl::Status Read(int64_t first, std::span<int32_t> out) const override {
    std::copy_n(ids_.begin() + first, out.size(), out.begin());
    return absl::OkStatus();
  }

 private:
  const std::vector<int32_t> ids_;
  const int64_t vocab_;
};

// The size of what is held out of `size`, which has the unit `units`.
absl::StatusOr<int64_t> HeldOut(const TextData& source, int64_t size, const char* units) {
  const int64_t held_out = int64_t(source.validation_fraction * double(size));
  if (source.validation_fraction == 0 || held_out > 0) return held_out;
  return absl::InvalidArgumentError(absl::StrCat(source.path, ": validation_fraction ",
                                                 source.validation_fraction, " of ", size, " ",
                                                 units, " holds out nothing"));
}

absl::StatusOr<std::string> ReadText(const std::string& path, const Roots& roots) {
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path, roots));
  if (int64_t(file.size()) > kMostEncodedBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": wanted at most ", kMostEncodedBytes, " bytes beside a tokenizer_path, found ",
        file.size(), "; trainyard-tokenize makes data.indexed of longer texts"));
  }
  std::string text(size_t(file.size()), '\0');
  RETURN_IF_ERROR(file.ReadAt(0, text.data(), text.size()));
  return text;
}

absl::StatusOr<DataSplits> OpenEncoded(const TextData& source, const DataOptions& options) {
  CHECK(options.open_lines != nullptr) << "nothing encodes texts";
  const int64_t vocab = VocabularyOf(options);
  ASSIGN_OR_RETURN(const std::shared_ptr<const LineEncoding> encoding,
                   options.open_lines({.tokenizer = source.tokenizer_path,
                                       .vocab = vocab,
                                       .texts = true,
                                       .roots = options.roots}));
  ASSIGN_OR_RETURN(const std::string text, ReadText(source.path, options.roots));
  EncodedLine encoded;
  if (const absl::Status status = encoding->NewEncoder()->Encode(text, encoded); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat(source.path, ": ", status.message()));
  }
  const int64_t tokens = int64_t(encoded.ids.size());
  ASSIGN_OR_RETURN(const int64_t held_out, HeldOut(source, tokens, "tokens"));
  LogInfo("text_encoded", {{"file", source.path}, {"bytes", text.size()}, {"tokens", tokens}});
  const SplitStream split{.stream = std::make_shared<EncodedStream>(std::move(encoded.ids), vocab),
                          .file = source.path,
                          .split = tokens - held_out};
  ASSIGN_OR_RETURN(DataSplits splits, CutStream(split, options.sequence));
  splits.encoding = encoding->digest();
  splits.tokenizer = encoding->tokenizer_path();
  splits.tokenizer_sha256 = encoding->tokenizer_sha256();
  return splits;
}

void VisitText(DataConfig& data, SourceVisit visit) {
  TextData& text = data.As<TextData>();
  visit({.name = "path"}, &text.path);
  visit({.name = "validation_fraction"}, &text.validation_fraction);
  visit({.name = "tokenizer"}, Choice{.names = {"BYTES"}, .set = nullptr});
  // Its fingerprint is that of the file which is opened (train/step/job_data.cc).
  visit({.name = "tokenizer_path", .files = {}}, &text.tokenizer_path);
}

SourceFacts TextFacts(const DataConfig& data) {
  const TextData& text = data.As<TextData>();
  return {.inputs = DeliveredTokens(),
          .validation_fraction = text.validation_fraction,
          .byte_tokens = text.tokenizer_path.empty()};
}

std::string* TokenizerOfText(DataConfig& data) {
  TextData& text = data.As<TextData>();
  return text.tokenizer_path.empty() ? nullptr : &text.tokenizer_path;
}

absl::StatusOr<DataSplits> OpenTextSamples(const DataConfig& data, const DataOptions& options) {
  const TextData& text = data.As<TextData>();
  if (!text.tokenizer_path.empty()) return OpenEncoded(text, options);
  ASSIGN_OR_RETURN(const SplitStream split, OpenText(text, options.roots));
  return CutStream(split, options.sequence);
}

}  // namespace

const DataSource& TextSource() {
  static const DataSource kSource = {.name = "text",
                                     .example = "text: {path: ...}",
                                     .make = [] { return DataConfig(TextData()); },
                                     .visit = VisitText,
                                     .facts = TextFacts,
                                     .open = OpenTextSamples,
                                     .tokenizer = TokenizerOfText};
  return kSource;
}

absl::StatusOr<SplitStream> OpenText(const TextData& source, const Roots& roots) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(source.path, roots));
  const int64_t size = int64_t(file.size());
  ASSIGN_OR_RETURN(const int64_t held_out, HeldOut(source, size, "bytes"));
  return SplitStream{.stream = std::make_shared<ByteStream>(std::move(file)),
                     .file = source.path,
                     .split = size - held_out};
}

}  // namespace trainyard
