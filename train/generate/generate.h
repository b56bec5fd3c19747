// Generates text with a trained model, one token after another. The tokens are those of the
// tokenizer that the model was imported with, or bytes.

#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/device/backend.h"
#include "train/generate/inference_model.h"

namespace trainyard {

inline constexpr int64_t kMaxGeneratedTokens = 1'000'000;
inline constexpr double kMaxTemperature = 100;  // Above, all tokens are about equally likely.

struct GenerateOptions {
  InferenceModel::Options model;
  std::string prompt;        // May be empty.
  int64_t tokens = 200;      // Number of tokens to write.
  double temperature = 0.8;  // 0: the most likely token; 1: as trained.
  uint64_t seed = 1;         // The same seed writes the same text.
};

// Calls `write` with each character when it is sampled. Bytes that belong to no character are
// written as '?', so the output is UTF-8. In all, `tokens` tokens are sampled. Errors: those of
// InferenceModel::Load. INVALID_ARGUMENT: a setting is out of range.
absl::Status Generate(const GenerateOptions& options, const Backend& backend,
                      const std::function<void(absl::string_view)>& write);

// Returns the token that the uniform number `u` draws from softmax(logits / temperature). If
// temperature is 0, returns the most likely token, the first of equal ones.
int64_t SampleToken(std::span<const float> logits, double temperature, double u);

}  // namespace trainyard
