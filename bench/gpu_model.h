// Predicts a GPU's time for a recorded program from shapes and bytes. A first measurement is
// compared with the prediction: a difference says where this model, or a kernel, is wrong.
//
// A product takes the time of its tiles, in waves over the multiprocessors, or of its bytes,
// whichever is longer. Attention takes the time of published kernels for such sequences and heads.
// Everything else takes the time of its bytes.

#pragma once

#include <array>
#include <string>

#include "absl/status/statusor.h"
#include "models/program/plan.h"
#include "models/program/program.h"

namespace trainyard::bench {

// FLOP/s of causal attention: `most` for long sequences; `half` is the length at which the rate is
// half of `most`.
struct AttentionRate {
  double most = 0;
  double half = 0;
  double at(int64_t sequence) const { return most * double(sequence) / (double(sequence) + half); }
};

struct GpuRates {
  std::string name;
  double peak = 0;                              // FLOP/s, dense bf16, as published: MFU is of this.
  double products = 0;                          // FLOP/s of a large bf16 product of random numbers.
  double narrow_peak = 0, narrow_products = 0;  // The same in 8 bits.
  double memory = 0;                            // Bytes/s that kernels reach.
  // Bytes/s that kernels reach over PCI Express, in each direction while both are used.
  double host_link = 0;
  int multiprocessors = 0;
  // By head dim up to 64, up to 128: forward, backward in any order, backward in one order; all 5
  // products of backward counted.
  std::array<AttentionRate, 2> forward, backward, backward_in_order;
};

// "h100", "h200"; NOT_FOUND with the names that there are.
absl::StatusOr<GpuRates> RatesOf(const std::string& gpu);

enum class Part { kProducts, kHead, kAttention, kExperts, kMemory, kOptimizer, kGaps };
inline constexpr int kNumParts = 7;
const char* Name(Part part);

struct OpPrediction {
  Part part = Part::kMemory;
  double seconds = 0;
};

// Returns the prediction for one replay of an instance whose sequences each hold `documents`
// documents of equal length. Attention leaves out pairs of tokens of different documents.
OpPrediction Predict(const GpuRates& gpu, const Program& program, const Instance& instance,
                     int64_t documents);

// Seconds of a step in which the device waits for its next kernel.
double PredictGaps(const Program& program, int64_t micro_batches);

}  // namespace trainyard::bench
