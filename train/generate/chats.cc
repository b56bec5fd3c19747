#include "train/generate/chats.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "train/generate/lines.h"
#include "train/generate/tokenizer_of.h"

namespace trainyard {
namespace {

// Adds a conversation: `line.counts` says which tokens count, and an answer is a run of them.
void Score(InferenceModel& model, const EncodedLine& line, AnswerScore& score) {
  model.Run(std::span(line.ids).first(line.ids.size() - 1));
  const size_t vocab = size_t(model.tokenizer().vocab());
  bool exact = true;
  for (size_t i = 1; i < line.ids.size(); ++i) {
    if (line.counts[i] == 0) continue;
    const std::span<const float> logits = model.Logits(i - 1);
    const auto likeliest = std::max_element(logits.begin(), logits.begin() + ptrdiff_t(vocab));
    exact = exact && likeliest - logits.begin() == line.ids[i];
    score.nats += model.Surprise(i - 1, line.ids[i]);
    ++score.tokens;
    if (i + 1 < line.ids.size() && line.counts[i + 1] != 0) continue;
    ++score.answers;
    score.exact += int64_t(std::exchange(exact, true));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChatTokenizer>> ChatTokenizerOf(const InferenceModel& model,
                                                               ChatFormatChoice choice) {
  if (model.tokenizer_path().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(model.checkpoint(), ": wanted a model with a tokenizer for chats, found one ",
                     "of bytes, which reads any text as it is"));
  }
  if (choice.name.empty()) {
    ASSIGN_OR_RETURN(const auto of_run, ChatFormatOf(model.checkpoint()));
    const std::string date = choice.date;
    if (of_run) choice = *of_run;
    if (!date.empty()) choice.date = date;
  }
  choice.tokenizer = model.tokenizer_path();
  ASSIGN_OR_RETURN(ChosenChatFormat chosen, ChooseChatFormat(choice));
  return ChatTokenizer::Create(model.tokenizer(), std::move(chosen));
}

absl::StatusOr<AnswerScore> ScoreChats(InferenceModel& model, const std::string& path,
                                       const ChatFormatChoice& choice) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ChatTokenizer> chat, ChatTokenizerOf(model, choice));
  const std::unique_ptr<ChatEncoder> encoder = chat->NewEncoder();
  AnswerScore score;
  EncodedLine line;
  RETURN_IF_ERROR(ForEachLine(path, [&](absl::string_view text, int64_t) -> absl::Status {
    RETURN_IF_ERROR(encoder->Encode(text, line));
    // The first token follows nothing.
    const auto counted = std::span(line.counts).subspan(std::min<size_t>(1, line.counts.size()));
    if (std::all_of(counted.begin(), counted.end(), [](uint8_t count) { return count == 0; })) {
      return absl::OkStatus();
    }
    if (int64_t(line.ids.size()) > model.window() + 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("wanted a conversation of at most ", model.window() + 1,
                       " tokens, one more than the window; found ", line.ids.size(),
                       "; --window gives the model a longer one, up to the model's longest"));
    }
    ++score.conversations;
    Score(model, line, score);
    return absl::OkStatus();
  }));
  if (score.tokens > 0) return score;
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": wanted a conversation with an answer, found none"));
}

}  // namespace trainyard
