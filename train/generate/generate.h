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
  // Of several prompts, how many the model goes on with at once; 0: kDefaultBatch, or as many as
  // the machine has memory for.
  int64_t batch = 0;
  std::function<bool()> cancelled = nullptr;  // As ContinuationOptions::cancelled.
};

// Texts of which the model reads a token each at once, if nobody says how many.
inline constexpr int64_t kDefaultBatch = 16;

// Calls `write` with each character when it is sampled. Bytes that belong to no character are
// written as '?', so the output is UTF-8. At most `tokens` tokens are sampled. An answer ends
// before the token that ends answers in its format. Errors: those of InferenceModel::Load, and,
// with a question, of ChatTokenizerOf. INVALID_ARGUMENT: a setting is out of range, or a question
// of a model that was trained on segments and has no format. CANCELLED: options.cancelled said so.
absl::Status Generate(const GenerateOptions& options, const Backend& backend,
                      const std::function<void(absl::string_view)>& write);

// Several prompts, from one of the two.
struct Prompts {
  std::vector<std::string> texts = {};
  // A file of lines of JSON (train/generate/prompt_lines.h); empty: none.
  std::string path = {};
};

// Goes on with each prompt, options.batch of them at once, and calls `write` with a line for each,
// in their order: the object of JSON of the prompt's line (`prompt`, for a text), to which the
// fields `generated`, `tokens` and `ended_by` are added. Each prompt has draws of its own, which
// depend on the seed and its place among the prompts. Of `options`, `prompt`, `chat` and `system`
// do not count. Errors: those of Generate, and of ReadPromptLines, with file and line. Prompts that
// cannot be read are found before the first one is answered.
absl::Status GenerateEach(const GenerateOptions& options, const Prompts& prompts,
                          const Backend& backend,
                          const std::function<void(const std::string&)>& write);

// Answers the question of each line of a file (ReadChatQuestion), options.batch of them at once,
// and calls `write` with the line's object of JSON, to which the field `generated` is added. All
// answers have the same draws, so that an answer does not depend on the other lines. Of `options`,
// `prompt`, `chat` and `system` do not count. Errors: those of Generate, and of ReadChatQuestion
// with file and line; no question is answered then. INVALID_ARGUMENT: a line has the field already.
absl::Status AnswerChats(const GenerateOptions& options, const std::string& path,
                         const Backend& backend,
                         const std::function<void(const std::string&)>& write);

}  // namespace trainyard
