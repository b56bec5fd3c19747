// Files of prompts: lines of JSON, which say what a model goes on with or answers.

#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "train/chat/conversation.h"

namespace trainyard {

struct PromptLine {
  nlohmann::json object;                   // Of the line.
  std::string place;                       // FILE:LINE, or which --prompt it is.
  std::string text = {};                   // What the model goes on with, if there are no messages.
  std::vector<ChatMessage> messages = {};  // What the model answers.
};

// What a line with a prompt that is a text means.
enum class PromptMeans : uint8_t { kText, kQuestion };

// Reads a file whose lines that are not blank each have one of these:
//
//   {"prompt": "..."}      goes on with this text, or answers it (PromptMeans)
//   all other objects of which ReadChatQuestion finds the question
//
// Errors name the file and the line: those of ReadFile and ReadChatQuestion. DATA_LOSS: no JSON.
// INVALID_ARGUMENT: a line has one of the fields `added`, which the answer would have.
absl::StatusOr<std::vector<PromptLine>> ReadPromptLines(const std::string& path, PromptMeans means,
                                                        const std::vector<std::string>& added);

}  // namespace trainyard
