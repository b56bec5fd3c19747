// How the lines of a file of chats, or texts, become tokens, for a source of data.

#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "train/chat/line_encoder.h"

namespace trainyard {

// Opens the tokenizer and chooses the format. Errors name the path: those of OpenTokenizer,
// CheckVocabulary, ChooseChatFormat and ChatTokenizer::Create.
absl::StatusOr<std::shared_ptr<const LineEncoding>> OpenChatLines(
    const LineEncodingOptions& options);

}  // namespace trainyard
