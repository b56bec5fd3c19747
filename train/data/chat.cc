#include "train/data/chat.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/log.h"
#include "common/mutex.h"
#include "common/rng.h"
#include "common/shown.h"
#include "common/status_macros.h"
#include "models/language_model.h"
#include "train/chat/chat_format.h"
#include "train/chat/line_encoder.h"
#include "train/data/line_index.h"
#include "train/data/packed_order.h"

namespace trainyard {
namespace {

// As many samples as no job uses up: the conversations begin again and again.
constexpr int64_t kPackedSamples = int64_t{1} << 40;

// The file, which both splits share. Thread-safe.
class ChatFile {
 public:
  ChatFile(InputFile file, LineIndex index, std::shared_ptr<const LineEncoding> encoding)
      : file_(std::move(file)), index_(std::move(index)), encoding_(std::move(encoding)) {}

  const std::string& path() const { return file_.path(); }
  int64_t lines() const { return int64_t(index_.size()); }
  const IndexedLine& line(int64_t number) const { return index_[size_t(number)]; }

  // Returns the tokens of a line. DATA_LOSS: it is not the line of the index any more.
  absl::StatusOr<EncodedLine> Read(int64_t number) const {
    std::string bytes;
    RETURN_IF_ERROR(ReadLine(file_, index_, number, bytes));
    std::unique_ptr<LineEncoder> encoder = TakeEncoder();
    EncodedLine encoded;
    const absl::Status status = encoder->Encode(bytes, encoded);
    {
      const MutexLock lock(mutex_);
      encoders_.push_back(std::move(encoder));
    }
    if (status.ok() && IndexOf(encoded, line(number).offset) == line(number)) return encoded;
    return absl::DataLossError(
        absl::StrCat(path(), ": changed after it was opened: the line at byte ",
                     line(number).offset, " has other tokens now; ", status.message()));
  }

 private:
  std::unique_ptr<LineEncoder> TakeEncoder() const {
    const MutexLock lock(mutex_);
    if (encoders_.empty()) return encoding_->NewEncoder();
    std::unique_ptr<LineEncoder> encoder = std::move(encoders_.back());
    encoders_.pop_back();
    return encoder;
  }

  const InputFile file_;
  const LineIndex index_;
  const std::shared_ptr<const LineEncoding> encoding_;
  mutable Mutex mutex_;
  mutable std::vector<std::unique_ptr<LineEncoder>> encoders_ ABSL_GUARDED_BY(mutex_);  // Idle.
};

// Lines of a file, as samples.
struct ChatLines {
  std::shared_ptr<const ChatFile> file;
  int64_t first = 0, count = 0;
  TooLong too_long = TooLong::kRefuse;
  int64_t sequence = 0;

  // The places that a line takes in a sample; 0: it is left out.
  int32_t PlacesOf(int64_t line) const {
    const IndexedLine& indexed = file->line(first + line);
    if (indexed.target == 0) return 0;
    const int64_t places = int64_t(indexed.ids) - 1;
    if (places <= sequence) return int32_t(places);
    // Of what is cut, a target must be left.
    return too_long == TooLong::kCut && indexed.target <= sequence ? int32_t(sequence) : 0;
  }
};

class ChatSamples final : public Dataset {
 public:
  // Behind the first `samples`, there is padding alone.
  ChatSamples(ChatLines lines, std::shared_ptr<const PackedOrder> order, int64_t vocab,
              int64_t samples)
      : lines_(std::move(lines)),
        order_(std::move(order)),
        inputs_(TokenInputs(vocab)),
        samples_(samples) {
    inputs_.push_back(DocumentBegins(lines_.sequence));
  }

  int64_t num_samples() const override { return kPackedSamples; }
  bool is_shuffled() const override { return true; }
  const std::vector<InputSpec>& inputs() const override { return inputs_; }
  bool counts_all_targets() const override { return false; }

  absl::Status Read(const SampleId& sample, std::span<InputData> out) const override {
    CHECK(out.size() == inputs_.size()) << out.size();
    CHECK(sample.index >= 0 && sample.index < kPackedSamples) << sample.index;
    auto& tokens = std::get<std::vector<int32_t>>(out[0]);
    auto& targets = std::get<std::vector<int32_t>>(out[1]);
    auto& begins = std::get<std::vector<int32_t>>(out[2]);
    std::vector<int64_t> documents;
    if (sample.index < samples_) {
      ASSIGN_OR_RETURN(documents, order_->DocumentsOf(sample.index));
    }
    int64_t at = 0;
    for (const int64_t line : documents) {
      ASSIGN_OR_RETURN(const EncodedLine encoded, lines_.file->Read(lines_.first + line));
      const int64_t places = lines_.PlacesOf(line);
      for (size_t i = 0; i < size_t(places); ++i) {
        tokens.push_back(encoded.ids[i]);
        targets.push_back(encoded.counts[i + 1] != 0 ? encoded.ids[i + 1] : kNotCounted);
      }
      begins.insert(begins.end(), size_t(places), int32_t(at));
      at += places;
    }
    for (; at < lines_.sequence; ++at) {  // Each place of padding is a document by itself.
      tokens.push_back(0);
      targets.push_back(kNotCounted);
      begins.push_back(int32_t(at));
    }
    return absl::OkStatus();
  }

 private:
  const ChatLines lines_;
  const std::shared_ptr<const PackedOrder> order_;
  std::vector<InputSpec> inputs_;
  const int64_t samples_;
};

// What the lines of a part are.
struct LineCounts {
  int64_t too_long = 0;
  int64_t without_targets = 0;
  int64_t longest = 0;         // Tokens.
  int64_t first_too_long = 0;  // The line's byte.
};

LineCounts CountLines(const ChatLines& part) {
  LineCounts counts;
  for (int64_t i = 0; i < part.count; ++i) {
    const IndexedLine& line = part.file->line(part.first + i);
    counts.without_targets += line.target == 0;
    counts.longest = std::max<int64_t>(counts.longest, line.ids);
    if (line.target == 0 || int64_t(line.ids) - 1 <= part.sequence) continue;
    if (counts.too_long++ == 0) counts.first_too_long = int64_t(line.offset);
  }
  return counts;
}

struct Samples {
  std::unique_ptr<Dataset> dataset;
  int64_t epoch = 0;
  double padding = 0;  // The share of an epoch's places.
};

absl::StatusOr<Samples> MakeSamples(const ChatLines& part, bool training,
                                    const DataOptions& options) {
  const char* const what = training ? "training" : "validation";
  const LineCounts counts = CountLines(part);
  if (counts.too_long > 0 && part.too_long == TooLong::kRefuse) {
    return absl::InvalidArgumentError(absl::StrCat(
        part.file->path(), ": wanted chats of at most batch.sequence + 1 = ", part.sequence + 1,
        " tokens, found ", counts.too_long, " of ", part.count, " that have up to ", counts.longest,
        ", the first at byte ", counts.first_too_long, "; data.chat.too_long: CUT or DROP, or ",
        "batch.sequence ", counts.longest - 1, " where the model has so many"));
  }
  // Both parts and all seeds have orders of their own.
  const uint64_t key = RandomBits(options.seed, HashName("data/chat"), training ? 0 : 1);
  const auto order = std::make_shared<const PackedOrder>(
      part.count, int32_t(part.sequence), key,
      [part](std::span<const int64_t> lines, std::span<int32_t> places) {
        for (size_t i = 0; i < lines.size(); ++i) places[i] = part.PlacesOf(lines[i]);
        return absl::OkStatus();
      });
  const auto epoch = order->FirstEpoch();
  if (!epoch.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(part.file->path(), ": wanted a chat for ", what,
                     " that has a target which counts, and is not too long, found none in ",
                     part.count, " lines, of which ", counts.too_long, " are too long, up to ",
                     counts.longest, " tokens, where batch.sequence is ", part.sequence));
  }
  const double padding = 1 - double(epoch->tokens) / double(epoch->samples) / double(part.sequence);
  LogInfo("chats", {{"file", part.file->path()},
                    {"for", what},
                    {"lines", part.count},
                    {"without_targets", counts.without_targets},
                    {"too_long", counts.too_long},
                    {"samples", epoch->samples},
                    {"padding", padding}});
  return Samples{
      .dataset = std::make_unique<ChatSamples>(part, order, VocabularyOf(options),
                                               training ? kPackedSamples : epoch->samples),
      .epoch = epoch->samples,
      .padding = padding};
}

void VisitChat(DataConfig& data, SourceVisit visit) {
  ChatData& chat = data.As<ChatData>();
  visit({.name = "path"}, &chat.path);
  // Its fingerprint is that of the file which is opened (train/step/job_data.cc).
  visit({.name = "tokenizer", .files = {}}, &chat.tokenizer);
  visit({.name = "format", .files = {}}, &chat.format);
  visit({.name = "date", .files = {}}, &chat.date);
  visit({.name = "validation_fraction"}, &chat.validation_fraction);
  TooLong& too_long = chat.too_long;
  visit({.name = "too_long"}, Choice{.names = {"REFUSE", "CUT", "DROP"},
                                     .index = size_t(too_long),
                                     .set = [&](size_t index) { too_long = TooLong(index); }});
}

SourceFacts ChatFacts(const DataConfig& data) {
  return {.inputs = DeliveredTokens(),
          .validation_fraction = data.As<ChatData>().validation_fraction,
          .reset_attention_mask = true,
          .packs = true,
          .ends = true};
}

void CheckChat(const DataConfig& data, Violations& violations) {
  const ChatData& chat = data.As<ChatData>();
  if (chat.tokenizer.empty()) {
    violations.Add("data.chat.tokenizer",
                   "the path of a tokenizer's file or directory, or model.import, whose tokenizer "
                   "is then taken",
                   "none");
  }
  if (chat.format.empty() || chat.format == kNoChatFormat) return;
  const ChatFormat* const format = FindChatFormat(chat.format);
  if (format == nullptr) {
    std::vector<std::string> names = {kNoChatFormat};
    for (const ChatFormat& known : AllChatFormats()) names.emplace_back(known.name);
    return violations.Add("data.chat.format", absl::StrCat("one of ", absl::StrJoin(names, ", ")),
                          Shown(chat.format), NearestName(chat.format, names));
  }
  const absl::Status date = DateOf(*format, chat.date).status();
  if (!date.ok()) violations.Add({.field = "data.chat.date", .note = std::string(date.message())});
}

absl::StatusOr<DataSplits> OpenChatSamples(const DataConfig& data, const DataOptions& options) {
  return OpenChat(data.As<ChatData>(), options);
}

}  // namespace

const DataSource& ChatSource() {
  static const DataSource kSource = {.name = "chat",
                                     .example = "chat: {path: ...}",
                                     .make = [] { return DataConfig(ChatData()); },
                                     .visit = VisitChat,
                                     .facts = ChatFacts,
                                     .open = OpenChatSamples,
                                     .check = CheckChat};
  return kSource;
}

absl::StatusOr<DataSplits> OpenChat(const ChatData& source, const DataOptions& options) {
  CHECK(options.open_lines != nullptr) << "nothing encodes lines";
  ASSIGN_OR_RETURN(const std::shared_ptr<const LineEncoding> encoding,
                   options.open_lines({.tokenizer = source.tokenizer,
                                       .format = source.format,
                                       .date = source.date,
                                       .vocab = VocabularyOf(options),
                                       .roots = options.roots}));
  ASSIGN_OR_RETURN(InputFile opened, InputFile::Open(source.path, options.roots));
  ASSIGN_OR_RETURN(LineIndex index, OpenLineIndex(opened, *encoding));
  const auto file = std::make_shared<const ChatFile>(std::move(opened), std::move(index), encoding);
  const int64_t held_out = int64_t(source.validation_fraction * double(file->lines()));
  if (source.validation_fraction > 0 && held_out == 0) {
    return absl::InvalidArgumentError(absl::StrCat(file->path(), ": validation_fraction ",
                                                   source.validation_fraction, " of ",
                                                   file->lines(), " lines holds out nothing"));
  }
  const auto part = [&](int64_t first, int64_t count) {
    return ChatLines{.file = file,
                     .first = first,
                     .count = count,
                     .too_long = source.too_long,
                     .sequence = options.sequence};
  };
  const int64_t training = file->lines() - held_out;
  ASSIGN_OR_RETURN(Samples train, MakeSamples(part(0, training), /*training=*/true, options));
  DataSplits splits{.train = std::move(train.dataset),
                    .validation = nullptr,
                    .encoding = encoding->digest(),
                    .tokenizer = encoding->tokenizer_path(),
                    .padding = train.padding};
  if (held_out == 0) return splits;
  ASSIGN_OR_RETURN(Samples validation,
                   MakeSamples(part(training, held_out), /*training=*/false, options));
  splits.validation = std::move(validation.dataset);
  splits.held_out = validation.epoch;
  return splits;
}

}  // namespace trainyard
