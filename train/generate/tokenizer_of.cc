#include "train/generate/tokenizer_of.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "train/checkpoint/recorded_job.h"
#include "train/config/parse.h"
#include "train/data/source.h"
#include "train/hf/carried_files.h"
#include "train/tokenizer/byte_tokenizer.h"
#include "train/tokenizer/format.h"

namespace trainyard {
namespace {

bool KeepsTokenizer(const HfOrigin& origin) {
  const auto formats = TokenizerFormats();
  return std::any_of(formats.begin(), formats.end(), [&](const TokenizerFormat* format) {
    return format->file != nullptr && origin.files.contains(format->file);
  });
}

// Where the tokenizer is; "" if nobody knows.
absl::StatusOr<std::string> FindTokenizer(const std::string& checkpoint) {
  ASSIGN_OR_RETURN(const std::optional<std::string> keeper, KeeperOfTokenizer(checkpoint));
  if (keeper) return KeptVocabulary(*keeper);
  ASSIGN_OR_RETURN(const std::optional<ChatFormatChoice> chats, ChatFormatOf(checkpoint));
  if (chats && !chats->tokenizer.empty() && Exists(chats->tokenizer)) return chats->tokenizer;
  ASSIGN_OR_RETURN(const std::optional<HfOrigin> origin, FindOrigin(checkpoint));
  return origin && KeepsTokenizer(*origin) ? origin->path : "";
}

}  // namespace

absl::StatusOr<std::optional<ChatFormatChoice>> ChatFormatOf(const std::string& checkpoint) {
  ASSIGN_OR_RETURN(const std::optional<RecordedJob> record, RecordedJobOf(checkpoint));
  if (!record) return std::nullopt;
  const absl::StatusOr<JobConfig> job = ParseJobConfig(record->job);
  const std::optional<ChatFacts> chat = job.ok() ? FactsOf(job->data).chat : std::nullopt;
  if (!chat) return std::nullopt;
  const bool imported = chat->tokenizer == job->model.import_path;
  return ChatFormatChoice{
      .name = chat->format, .date = chat->date, .tokenizer = imported ? "" : chat->tokenizer};
}

absl::StatusOr<OpenedTokenizer> TokenizerOf(const std::string& checkpoint, int64_t model_vocab) {
  ASSIGN_OR_RETURN(const std::string path, FindTokenizer(checkpoint));
  if (!path.empty()) {
    ASSIGN_OR_RETURN(OpenedTokenizer opened, OpenTokenizer(path));
    RETURN_IF_ERROR(CheckVocabulary(opened, model_vocab));
    return opened;
  }
  if (model_vocab == ByteTokenizer().vocab()) {
    return OpenedTokenizer{
        .tokenizer = std::make_unique<ByteTokenizer>(), .path = {}, .digest = {}};
  }
  return absl::InvalidArgumentError(absl::StrCat(
      checkpoint, ": wanted a model of byte tokens, vocab 256, or one that was imported with its ",
      TokenizerFileNames(), "; found vocab ", model_vocab, ", and no tokenizer"));
}

}  // namespace trainyard
