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
  std::string system = {};  // What the system says before the question; may be empty.
  // The format and its date. Without a name, those of the run if it was trained on chats, and else
  // the format of the chat template beside the tokenizer. `tokenizer` does not count.
  ChatFormatChoice format = {};
  int64_t tokens = 200;  // Number of tokens to write.
  Sampling sampling = {};
  std::vector<std::string> stop = {};  // The text ends before the first of these.
  uint64_t seed = 1;                   // The same seed writes the same text.
};

// Calls `write` with each character when it is sampled. Bytes that belong to no character are
// written as '?', so the output is UTF-8. At most `tokens` tokens are sampled. An answer ends
// before the token that ends answers in its format. Errors: those of InferenceModel::Load, and,
// with a question, of ChooseChatFormat and ChatTokenizer::Create. INVALID_ARGUMENT: a setting is
// out of range, or a question of a model of bytes.
absl::Status Generate(const GenerateOptions& options, const Backend& backend,
                      const std::function<void(absl::string_view)>& write);

}  // namespace trainyard
