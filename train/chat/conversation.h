// One line of a file of chats: a conversation, or segments that somebody else has rendered. Start
// at ReadChatLine.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "train/chat/line_encoder.h"

namespace trainyard {

inline constexpr size_t kMostChatSegments = 1024;

enum class ChatRole { kSystem, kUser, kAssistant };
absl::string_view Name(ChatRole role);  // "system", "user", "assistant".

struct ChatMessage {
  ChatRole role = ChatRole::kUser;
  std::string content = {};
  // What the assistant thought before the answer, and the field that had it: "reasoning_content" or
  // "thinking". No field: nothing.
  std::string reasoning = {};
  std::string reasoning_field = {};
};

// A text that is encoded as it is.
struct ChatSegment {
  std::string text = {};
  bool train = false;  // Whether its tokens count in the loss.
};

// Has messages or segments.
struct ChatLine {
  std::vector<ChatMessage> messages = {};
  std::vector<ChatSegment> segments = {};
};

// Reads a line of JSON, without its end, which has one of these. Other fields of the line are
// ignored, as is a prompt beside messages.
//
//   {"messages": [{"role": "user", "content": "..."}, ...]}
//   {"conversations": [{"from": "human", "value": "..."}, ...]}   as ShareGPT has them
//   {"prompt": "...", "completion": "..."}                        one turn of each side
//   {"segments": [{"text": "...", "train": true}, ...]}
//
// Errors say what was wanted and found, and in which field. INVALID_ARGUMENT: anything else, calls
// of tools and parts that are no text among it. DATA_LOSS: no JSON.
absl::StatusOr<ChatLine> ReadChatLine(absl::string_view line);

// Reads the question of a line, for a model that shall answer: the messages of ReadChatLine without
// the assistant's at the end, if there is one. A prompt needs no completion beside it. Of a pair of
// answers it is the question before the chosen one. The last message is the user's. Errors are
// those of ReadChatLine, and INVALID_ARGUMENT: segments.
absl::StatusOr<std::vector<ChatMessage>> ReadChatQuestion(absl::string_view line);

// Two answers to one question, of which the first one is better.
struct ChatPair {
  std::vector<ChatMessage> chosen = {}, rejected = {};  // Whole conversations.
  // How many answers of the assistant both have before those to be compared.
  size_t answers_before = 0;
};

// Reads a line of JSON, without its end, which has one of these. Other fields are ignored.
//
//   {"prompt": "...", "chosen": "...", "rejected": "..."}       one turn of each side
//   {"prompt": [MESSAGES], "chosen": [MESSAGES], "rejected": [MESSAGES]}
//       what follows the prompt begins with the assistant
//   {"chosen": [MESSAGES], "rejected": [MESSAGES]}              whole conversations
//
// Messages are as in ReadChatLine. Whole conversations begin with the same messages, at least up to
// the first question. Errors are those of ReadChatLine and CheckTurns.
absl::StatusOr<ChatPair> ReadChatPair(absl::string_view line);

// OK if the roles come in an order that can be trained on: perhaps system, and then user and
// assistant by turns, with the assistant at the end; and if no answer is empty. INVALID_ARGUMENT
// names the message.
absl::Status CheckTurns(const std::vector<ChatMessage>& messages);

}  // namespace trainyard
