// Conversations with a trained model: which format they have, what the model answers, and how well
// it predicts the answers that a file has.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "train/chat/chat_encoder.h"
#include "train/generate/inference_model.h"

namespace trainyard {

// Returns the model's tokenizer with a format of chats. `choice.tokenizer` does not count. Without
// a name, the format and its date are those of the run if the run was trained on chats, and else
// those of the chat template beside the tokenizer. The model must outlive the result. Errors: those
// of ChooseChatFormat and ChatTokenizer::Create. INVALID_ARGUMENT: a model of bytes.
absl::StatusOr<std::unique_ptr<ChatTokenizer>> ChatTokenizerOf(const InferenceModel& model,
                                                               ChatFormatChoice choice);

// How likely a model finds the answers of conversations. Counted are the tokens that count in the
// loss of training.
struct AnswerScore {
  int64_t conversations = 0;  // With an answer.
  int64_t answers = 0;
  int64_t exact = 0;  // Answers whose every token is the likeliest, given what precedes.
  int64_t tokens = 0;
  double nats = 0;  // The sum of -log(probability).

  double loss() const { return nats / double(tokens); }
};

// Scores a file whose lines are those of data.chat (docs/chat.md). Errors name the file and the
// line: those of ReadFile and of ChatEncoder::Encode. INVALID_ARGUMENT: a conversation is longer
// than the window and one token, or no token can be counted.
absl::StatusOr<AnswerScore> ScoreChats(InferenceModel& model, const std::string& path,
                                       const ChatFormatChoice& choice);

}  // namespace trainyard
