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
  IndexedLine line(int64_t number) const { return index_[size_t(number)]; }

  struct ReadLineOf {
    EncodedLine encoded;
    IndexedLine indexed;
  };
  // Returns the tokens of a line, and what the index said of it. DATA_LOSS: it is not the line of
  // the index any more.
  absl::StatusOr<ReadLineOf> Read(int64_t number) const {
    std::string bytes;
    RETURN_IF_ERROR(ReadLine(file_, index_, number, bytes));
    const IndexedLine wanted = line(number);
    std::unique_ptr<LineEncoder> encoder = TakeEncoder();
    EncodedLine encoded;
    const absl::Status status = encoder->Encode(bytes, encoded);
    {
      const MutexLock lock(mutex_);
      encoders_.push_back(std::move(encoder));
    }
    if (status.ok() && IndexOf(encoded, wanted.offset) == wanted) {
      return ReadLineOf{std::move(encoded), wanted};
    }
    return absl::DataLossError(
        absl::StrCat(path(), ": changed after it was opened: the line at byte ", wanted.offset,
                     " has other tokens now; ", status.message()));
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

// Of a chat, or of the chosen and the rejected conversation of a pair.
struct Places {
  int64_t first = 0, rejected = 0;
  int64_t sum() const { return first + rejected; }
};

Places WholePlaces(const IndexedLine& line) {
  return {.first = int64_t(line.ids) - 1,
          .rejected = line.rejected_ids == 0 ? 0 : int64_t(line.rejected_ids) - 1};
}

bool HasTargets(const IndexedLine& line) {
  return line.target != 0 && (line.rejected_ids == 0 || line.rejected_target != 0);
}

// Lines of a file, as samples.
struct ChatLines {
  std::shared_ptr<const ChatFile> file;
  int64_t first = 0, count = 0;
  TooLong too_long = TooLong::kRefuse;
  int64_t sequence = 0;

  IndexedLine line(int64_t line) const { return file->line(first + line); }
  // The places that the conversations of a line take in a sample. All 0: it is left out.
  Places PlacesOf(int64_t number) const { return PlacesOf(line(number)); }
  Places PlacesOf(const IndexedLine& indexed) const {
    if (!HasTargets(indexed)) return {};
    const Places whole = WholePlaces(indexed);
    if (whole.sum() <= sequence) return whole;
    if (too_long != TooLong::kCut) return {};
    Places cut{.first = sequence};
    if (whole.rejected > 0) {
      // Half of the sample, or what the other conversation leaves.
      const auto most = [&](int64_t other) { return std::max(sequence / 2, sequence - other); };
      cut = {.first = std::min(whole.first, most(whole.rejected)),
             .rejected = std::min(whole.rejected, most(whole.first))};
    }
    // Of what is cut, a target must be left.
    const bool left = indexed.target <= cut.first && indexed.rejected_target <= cut.rejected;
    return left ? cut : Places{};
  }
};

class ChatSamples final : public Dataset {
 public:
  // Behind the first `samples`, there is padding alone. `reference`: null, or that of pairs.
  ChatSamples(ChatLines lines, std::shared_ptr<const PackedOrder> order, int64_t vocab,
              int64_t samples, std::shared_ptr<const std::vector<double>> reference)
      : lines_(std::move(lines)),
        order_(std::move(order)),
        inputs_(TokenInputs(vocab)),
        samples_(samples),
        reference_(std::move(reference)) {
    inputs_.push_back(DocumentBegins(lines_.sequence));
    if (reference_ == nullptr) return;
    for (InputSpec& input : PreferenceInputs(lines_.sequence)) inputs_.push_back(std::move(input));
  }

  int64_t num_samples() const override { return kPackedSamples; }
  bool is_shuffled() const override { return true; }
  const std::vector<InputSpec>& inputs() const override { return inputs_; }
  bool counts_all_targets() const override { return false; }

  absl::Status Read(const SampleId& sample, std::span<InputData> out) const override {
    CHECK(out.size() == inputs_.size()) << out.size();
    ASSIGN_OR_RETURN(const std::vector<int64_t> documents, DocumentsOf(sample.index));
    int64_t at = 0;
    int32_t side = 0;
    for (const int64_t line : documents) {
      ASSIGN_OR_RETURN(const auto read, lines_.file->Read(lines_.first + line));
      const EncodedLine& encoded = read.encoded;
      const Places places = lines_.PlacesOf(read.indexed);
      if (at + places.sum() > lines_.sequence) return IndexChanged();
      at += AddConversation(encoded, 0, places.first, at, out);
      if (reference_ == nullptr) continue;
      at += AddConversation(encoded, encoded.rejected, places.rejected, at, out);
      AddSide(side++, (lines_.first + line) * 2, places.first, out);
      AddSide(side++, (lines_.first + line) * 2 + 1, places.rejected, out);
    }
    const size_t padding = size_t(lines_.sequence - at);
    for (; at < lines_.sequence; ++at) {  // Each place of padding is a document by itself.
      Integers(out, kTokens).push_back(0);
      Integers(out, kTargets).push_back(kNotCounted);
      Integers(out, kBegins).push_back(int32_t(at));
    }
    if (reference_ == nullptr) return absl::OkStatus();
    Integers(out, kSides).insert(Integers(out, kSides).end(), padding, -1);
    Reference(out).insert(Reference(out).end(), padding, 0.0);
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<int64_t>> PairsOf(int64_t index) const override {
    ASSIGN_OR_RETURN(std::vector<int64_t> pairs, DocumentsOf(index));
    for (int64_t& pair : pairs) pair += lines_.first;
    return pairs;
  }

 private:
  enum Input { kTokens, kTargets, kBegins, kSides, kReference };
  static std::vector<int32_t>& Integers(std::span<InputData> out, Input input) {
    return std::get<std::vector<int32_t>>(out[input]);
  }
  static std::vector<double>& Reference(std::span<InputData> out) {
    return std::get<std::vector<double>>(out[kReference]);
  }

  // Somebody has written into the file of the index, which is mapped, since its lines were packed.
  absl::Status IndexChanged() const {
    return absl::DataLossError(
        absl::StrCat(lines_.file->path(), kLineIndexSuffix, ": changed while the job read it"));
  }
  absl::StatusOr<std::vector<int64_t>> DocumentsOf(int64_t sample) const {
    if (sample >= samples_) return std::vector<int64_t>();
    return order_->DocumentsOf(sample);
  }

  // Adds the conversation whose first id is `first`, at place `at` of the sample. Returns `places`.
  static int64_t AddConversation(const EncodedLine& line, size_t first, int64_t places, int64_t at,
                                 std::span<InputData> out) {
    for (size_t i = first; i < first + size_t(places); ++i) {
      Integers(out, kTokens).push_back(line.ids[i]);
      Integers(out, kTargets).push_back(line.counts[i + 1] != 0 ? line.ids[i + 1] : kNotCounted);
    }
    std::vector<int32_t>& begins = Integers(out, kBegins);
    begins.insert(begins.end(), size_t(places), int32_t(at));
    return places;
  }
  // The first token of a side has all that the reference says of it.
  void AddSide(int32_t side, int64_t number, int64_t places, std::span<InputData> out) const {
    Integers(out, kSides).insert(Integers(out, kSides).end(), size_t(places), side);
    Reference(out).push_back((*reference_)[size_t(number)]);
    Reference(out).insert(Reference(out).end(), size_t(places) - 1, 0.0);
  }

  const ChatLines lines_;
  const std::shared_ptr<const PackedOrder> order_;
  std::vector<InputSpec> inputs_;
  const int64_t samples_;
  const std::shared_ptr<const std::vector<double>> reference_;
};

// What the lines of a part are.
struct LineCounts {
  int64_t too_long = 0;
  int64_t without_targets = 0;
  int64_t longest = 0;         // Places.
  int64_t first_too_long = 0;  // The line's byte.
};

LineCounts CountLines(const ChatLines& part) {
  LineCounts counts;
  for (int64_t i = 0; i < part.count; ++i) {
    const IndexedLine line = part.line(i);
    counts.without_targets += !HasTargets(line);
    counts.longest = std::max(counts.longest, WholePlaces(line).sum());
    if (!HasTargets(line) || WholePlaces(line).sum() <= part.sequence) continue;
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
                                    const DataOptions& options,
                                    const std::shared_ptr<const std::vector<double>>& reference) {
  const char* const what = training ? "training" : "validation";
  const LineCounts counts = CountLines(part);
  const bool pairs = reference != nullptr;
  const int64_t more = pairs ? 2 : 1;  // Tokens than places.
  const char* const lines = pairs ? "pairs of conversations" : "chats";
  if (counts.too_long > 0 && part.too_long == TooLong::kRefuse) {
    return absl::InvalidArgumentError(absl::StrCat(
        part.file->path(), ": wanted ", lines, " of at most batch.sequence + ", more, " = ",
        part.sequence + more, " tokens", pairs ? " together" : "", ", found ", counts.too_long,
        " of ", part.count, " that have up to ", counts.longest + more, ", the first at byte ",
        counts.first_too_long, "; data.chat.too_long: CUT or DROP, or batch.sequence ",
        counts.longest, " where the model has so many"));
  }
  // Both parts and all seeds have orders of their own.
  const uint64_t key = RandomBits(options.seed, HashName("data/chat"), training ? 0 : 1);
  const auto order = std::make_shared<const PackedOrder>(
      part.count, int32_t(part.sequence), key,
      [part](std::span<const int64_t> lines, std::span<int32_t> places) {
        for (size_t i = 0; i < lines.size(); ++i) {
          places[i] = int32_t(part.PlacesOf(lines[i]).sum());
        }
        return absl::OkStatus();
      });
  const auto epoch = order->FirstEpoch();
  if (!epoch.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(part.file->path(), ": wanted ", pairs ? "a pair" : "a chat", " for ", what,
                     " that has a target which counts, and is not too long, found none in ",
                     part.count, " lines, of which ", counts.too_long, " are too long, up to ",
                     counts.longest + more, " tokens, where batch.sequence is ", part.sequence));
  }
  const double padding = 1 - double(epoch->tokens) / double(epoch->samples) / double(part.sequence);
  LogInfo("chats", {{"file", part.file->path()},
                    {"for", what},
                    {"lines", part.count},
                    {"without_targets", counts.without_targets},
                    {"too_long", counts.too_long},
                    {"samples", epoch->samples},
                    {"padding", padding}});
  return Samples{.dataset = std::make_unique<ChatSamples>(
                     part, order, VocabularyOf(options), training ? kPackedSamples : epoch->samples,
                     reference),
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

SourceFacts FactsOfChats(const DataConfig& data) {
  const ChatData& chat = data.As<ChatData>();
  return {.inputs = DeliveredTokens(),
          .validation_fraction = chat.validation_fraction,
          .reset_attention_mask = true,
          .packs = true,
          .ends = true,
          .chat = {{.tokenizer = chat.tokenizer, .format = chat.format, .date = chat.date}},
          .reading = absl::StrCat(int(chat.too_long))};
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
  static const DataSource kSource = {
      .name = "chat",
      .example = "chat: {path: ...}",
      .make = [] { return DataConfig(ChatData()); },
      .visit = VisitChat,
      .facts = FactsOfChats,
      .open = OpenChatSamples,
      .check = CheckChat,
      .tokenizer = [](DataConfig& data) { return &data.As<ChatData>().tokenizer; }};
  return kSource;
}

absl::StatusOr<DataSplits> OpenChat(const ChatData& source, const DataOptions& options) {
  CHECK(options.open_lines != nullptr) << "nothing encodes lines";
  ASSIGN_OR_RETURN(const std::shared_ptr<const LineEncoding> encoding,
                   options.open_lines({.tokenizer = source.tokenizer,
                                       .format = source.format,
                                       .date = source.date,
                                       .vocab = VocabularyOf(options),
                                       .pairs = options.pairs,
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
  std::shared_ptr<std::vector<double>> reference;
  if (options.pairs) reference = std::make_shared<std::vector<double>>(size_t(file->lines()) * 2);
  ASSIGN_OR_RETURN(Samples train,
                   MakeSamples(part(0, training), /*training=*/true, options, reference));
  DataSplits splits{.train = std::move(train.dataset),
                    .validation = nullptr,
                    .encoding = encoding->digest(),
                    .tokenizer = encoding->tokenizer_path(),
                    .tokenizer_sha256 = encoding->tokenizer_sha256(),
                    .padding = train.padding,
                    .reference = reference,
                    .epoch = train.epoch};
  if (held_out == 0) return splits;
  ASSIGN_OR_RETURN(Samples validation,
                   MakeSamples(part(training, held_out), /*training=*/false, options, reference));
  splits.validation = std::move(validation.dataset);
  splits.held_out = validation.epoch;
  return splits;
}

}  // namespace trainyard
