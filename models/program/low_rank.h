// Which linear layers of a recording have a low-rank adapter (models/layers/low_rank.h), and what
// the adapters' parameters are called.

#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "kernels/device/dtype.h"

namespace trainyard {

// The numbers of an adapter, as a job chooses them and PEFT writes them.
struct LoraNumbers {
  int64_t rank = 0;
  double alpha = 0;
  bool rslora = false;
  bool dora = false;  // The norms of the adapted weight's rows are trained, too.
  // The base's linear layers are in NF4 (nf4.h), and their numbers are rounded to this dtype.
  std::optional<DType> nf4 = {};
  // What the adapter's product is multiplied by: alpha / rank, or alpha / sqrt(rank) with rslora
  // (arXiv:2312.03732).
  double scale() const { return alpha / (rslora ? std::sqrt(double(rank)) : double(rank)); }
  bool operator==(const LoraNumbers&) const = default;
};

struct LowRank {
  int64_t rank = 0;  // 0: no layer has an adapter.
  double scale = 1;
  double dropout = 0;  // Of what a multiplies, in training: the probability that x[t,d] is dropped.
  bool magnitudes = false;  // The norms of the adapted weight's rows are trained, too.
  bool nf4 = false;         // Frozen weights of linear layers are in NF4 (nf4.h).
  // Whether the layer of this name has one: "model.layers.0.self_attn.q_proj". Null: all have one.
  std::function<bool(absl::string_view module)> adapts = nullptr;
};

// What follows the layer's name in the names of its matrices a and b, which are those of PEFT, and
// of what is added to the norms of the weight's rows. PEFT's lora_magnitude_vector is the sums.
inline constexpr char kLowRankDown[] = ".lora_A.weight";
inline constexpr char kLowRankUp[] = ".lora_B.weight";
inline constexpr char kMagnitudeOffset[] = ".lora_magnitude_offset";

// Returns the name of the layer beside which an adapter has this parameter, or "" if the parameter
// is no adapter's.
inline absl::string_view AdaptedModuleOf(absl::string_view parameter) {
  for (const char* ending : {kLowRankDown, kLowRankUp, kMagnitudeOffset}) {
    if (absl::ConsumeSuffix(&parameter, ending)) return parameter;
  }
  return "";
}

inline bool IsLowRank(absl::string_view parameter) { return !AdaptedModuleOf(parameter).empty(); }

// Returns the name of the layer that has this weight.
inline absl::string_view ModuleOf(absl::string_view weight) {
  return absl::StripSuffix(weight, ".weight");
}

}  // namespace trainyard
