#include "train/data/text.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
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

void VisitText(DataConfig& data, SourceVisit visit) {
  TextData& text = data.As<TextData>();
  visit({.name = "path"}, &text.path);
  visit({.name = "validation_fraction"}, &text.validation_fraction);
  visit({.name = "tokenizer"}, Choice{.names = {"BYTES"}, .set = nullptr});
}

SourceFacts TextFacts(const DataConfig& data) {
  return {.inputs = DeliveredTokens(),
          .validation_fraction = data.As<TextData>().validation_fraction,
          .byte_tokens = true};
}

absl::StatusOr<DataSplits> OpenTextSamples(const DataConfig& data, const DataOptions& options) {
  ASSIGN_OR_RETURN(const SplitStream split, OpenText(data.As<TextData>(), options.roots));
  return CutStream(split, options.sequence);
}

}  // namespace

const DataSource& TextSource() {
  static const DataSource kSource = {.name = "text",
                                     .example = "text: {path: ...}",
                                     .make = [] { return DataConfig(TextData()); },
                                     .visit = VisitText,
                                     .facts = TextFacts,
                                     .open = OpenTextSamples};
  return kSource;
}

absl::StatusOr<SplitStream> OpenText(const TextData& source, const Roots& roots) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(source.path, roots));
  const int64_t size = int64_t(file.size());
  const int64_t held_out = int64_t(source.validation_fraction * double(size));
  if (source.validation_fraction > 0 && held_out == 0) {
    return absl::InvalidArgumentError(absl::StrCat(source.path, ": validation_fraction ",
                                                   source.validation_fraction, " of ", size,
                                                   " bytes holds out nothing"));
  }
  return SplitStream{.stream = std::make_shared<ByteStream>(std::move(file)),
                     .file = source.path,
                     .split = size - held_out};
}

}  // namespace trainyard
