// How conversations become texts: the formats in which published models were trained. Start at
// AllChatFormats. formats.cc has the table.

#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "train/chat/conversation.h"

namespace trainyard {

// What a format leaves open.
struct ChatSettings {
  std::string begin =
      {};  // bos_token and eos_token of the tokenizer, where the format writes them.
  std::string end = {};
  std::string date = {};  // As the format writes it. Empty: the format writes none.
};

// A piece of a rendered conversation.
struct ChatPart {
  std::string text = {};
  bool counts = false;    // Whether the model learns to write it.
  bool is_token = false;  // The text is one token of the tokenizer.
};

class ChatScript {
 public:
  void Text(absl::string_view text, bool counts = false);
  void Token(absl::string_view token, bool counts = false);
  const std::vector<ChatPart>& parts() const { return parts_; }

 private:
  std::vector<ChatPart> parts_;
};

struct ChatFormat {
  // The messages pass CheckTurns and CheckFits.
  using Render = void(std::span<const ChatMessage> messages, const ChatSettings& settings,
                      ChatScript& script);

  const char* name;
  const char* models;  // Some that are published with it.
  Render* render;
  // The names of bos_token and eos_token in these models. Empty: the format does not write it.
  const char* begin = "";
  const char* end = "";
  const char* date_form = "";        // Of absl::FormatTime. Empty: the format writes no date.
  const char* reasoning_field = "";  // The field of a message that the format writes.
  const char* no_system = "";        // Why a message of the system is refused. Empty: it is not.
  const char* needs_system = "";     // Why one is wanted. Empty: it is not.
  const char* no_answer = "";        // A text that answers must not have. Empty: there is none.
  // SHA-256 of the texts of chat_template whose renderings the golden test compares. One line break
  // at the end does not count, since Jinja drops it.
  const char* templates[2] = {};
};

// The name that stands for none: all lines have segments.
inline constexpr char kNoChatFormat[] = "segments";

std::span<const ChatFormat> AllChatFormats();
const ChatFormat* FindChatFormat(absl::string_view name);  // Null: there is none.
std::string ChatFormatNames();                             // "chatml, llama2, ..."

// OK if the format can write all of the conversation, and nothing of the conversation would be
// lost. INVALID_ARGUMENT names the message.
absl::Status CheckFits(const ChatFormat& format, std::span<const ChatMessage> messages);

// Returns the date as the format writes it; "" if the format writes none. `date` is YYYY-MM-DD.
// INVALID_ARGUMENT: there is no such day, or there is a date too few or too many.
absl::StatusOr<std::string> DateOf(const ChatFormat& format, const std::string& date);

}  // namespace trainyard
