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
#include "train/generate/inference_model.h"
#include "train/generate/sampling.h"

namespace trainyard {

inline constexpr int64_t kMaxGeneratedTokens = 1'000'000;

struct GenerateOptions {
  InferenceModel::Options model;
  std::string prompt = {};  // May be empty.
  int64_t tokens = 200;     // Number of tokens to write.
  Sampling sampling = {};
  std::vector<std::string> stop = {};  // The text ends before the first of these.
  uint64_t seed = 1;                   // The same seed writes the same text.
};

// Calls `write` with each character when it is sampled. Bytes that belong to no character are
// written as '?', so the output is UTF-8. At most `tokens` tokens are sampled. Errors: those of
// InferenceModel::Load. INVALID_ARGUMENT: a setting is out of range.
absl::Status Generate(const GenerateOptions& options, const Backend& backend,
                      const std::function<void(absl::string_view)>& write);

}  // namespace trainyard
