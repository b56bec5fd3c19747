// Chooses the format of chats: by name, or by the chat template that a tokenizer is published with.
// Start at ChooseChatFormat.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/roots.h"
#include "train/chat/chat_format.h"

namespace trainyard {

struct ChosenChatFormat {
  const ChatFormat* format = nullptr;  // Null: lines have segments, and no format is written.
  ChatSettings settings = {};
};

struct ChatFormatChoice {
  std::string name = {};       // Of a format, or kNoChatFormat. Empty: the template decides.
  std::string date = {};       // YYYY-MM-DD. Wanted by formats that write one, and by no others.
  std::string tokenizer = {};  // The path of a tokenizer's file or directory (OpenTokenizer).
};

// Reads what lies beside the tokenizer's file: chat_template.jinja, chat_template.json or
// tokenizer_config.json has the template, and the last has the names of bos_token and eos_token.
// A template is known by its text alone (ChatFormat::templates). Templates are programs, and are
// never run.
//
// Errors: INVALID_ARGUMENT for a name that there is none of, a template that is not known, both
// with the names that are, none where a name is missing, and a date too few or too many.
// DATA_LOSS for a file that is damaged. They name the path.
absl::StatusOr<ChosenChatFormat> ChooseChatFormat(const ChatFormatChoice& choice,
                                                  const Roots& roots = Roots());

}  // namespace trainyard
