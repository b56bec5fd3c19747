// Text from a trained byte model: one token after another, each sampled from the logits of a replay
// of the whole window. Simple, and exact; a cache of keys and values would make it faster.

#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/device/backend.h"

namespace trainyard {

inline constexpr int64_t kMaxGeneratedTokens = 1'000'000;
inline constexpr double kMaxTemperature = 100;  // Beyond, every token is as likely as any other.

struct GenerateOptions {
  std::string checkpoint;    // A checkpoint, or a job's checkpoint.directory.
  std::string prompt;        // Bytes; may be empty.
  int64_t tokens = 200;      // To write.
  double temperature = 0.8;  // 0: the likeliest token; 1: as trained.
  uint64_t seed = 1;         // The same seed writes the same text.
  int64_t window = 0;        // Tokens that the model sees at once; 0: those it was trained with.
  int threads = 1;
};

// Calls `write` with each character once it is sampled, '?' for bytes that belong to none, so that
// what is written is UTF-8, `tokens` bytes of it. Errors: those of FindCheckpoint;
// INVALID_ARGUMENT for a model whose tokens are not bytes, or a setting out of range.
absl::Status Generate(const GenerateOptions& options, const Backend& backend,
                      const std::function<void(absl::string_view)>& write);

// The token drawn by the uniform number `u` from softmax(logits / temperature); the likeliest one,
// the first of several, where temperature is 0.
int64_t SampleToken(std::span<const float> logits, double temperature, double u);

}  // namespace trainyard
