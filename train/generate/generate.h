// Generates text with a trained model, one token after another. The tokens are those of the
// tokenizer that the model was imported with, or bytes.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/device/backend.h"
#include "train/chat/choose_format.h"
#include "train/generate/inference_model.h"
#include "train/generate/sampling.h"

namespace trainyard {

inline constexpr int64_t kMaxGeneratedTokens = 1'000'000;

struct GenerateOptions {
  InferenceModel::Options model = {};
  std::string prompt = {};  // May be empty.
  // A question. The model answers in its format of chats, and `prompt` does not count. Empty: none.
  std::string chat = {};
  std::string system = {};       // What the system says before the question; may be empty.
  ChatFormatChoice format = {};  // Of chats (ChatTokenizerOf in chats.h).
  int64_t tokens = 200;          // Number of tokens to write.
  Sampling sampling = {};
  std::vector<std::string> stop = {};  // The text ends before the first of these.
  uint64_t seed = 1;                   // The same seed writes the same text.
};

// Calls `write` with each character when it is sampled. Bytes that belong to no character are
// written as '?', so the output is UTF-8. At most `tokens` tokens are sampled. An answer ends
// before the token that ends answers in its format. Errors: those of InferenceModel::Load, and,
// with a question, of ChatTokenizerOf. INVALID_ARGUMENT: a setting is out of range, or a question
// of a model that was trained on segments and has no format.
absl::Status Generate(const GenerateOptions& options, const Backend& backend,
                      const std::function<void(absl::string_view)>& write);

// Answers the question of each line of a file (ReadChatQuestion), and calls `write` with the line's
// object of JSON, to which the field `generated` is added. All answers begin with the same seed, so
// an answer does not depend on the lines before (but for rounding, if a line goes on with the one
// before, whose keys and values are kept). Of `options`, `prompt`, `chat` and `system` do not
// count. Errors: those of Generate and of ReadChatQuestion, with file and line; what was answered
// before is written. INVALID_ARGUMENT: a line has the field already.
absl::Status AnswerChats(const GenerateOptions& options, const std::string& path,
                         const Backend& backend,
                         const std::function<void(const std::string&)>& write);

}  // namespace trainyard
