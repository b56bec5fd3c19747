// Which linear layers of a recording have a low-rank adapter (models/layers/low_rank.h), and what
// the adapters' parameters are called.

#pragma once

#include <cmath>
#include <cstdint>
#include <functional>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace trainyard {

// The numbers of an adapter, as a job chooses them and PEFT writes them.
struct LoraNumbers {
  int64_t rank = 0;
  double alpha = 0;
  bool rslora = false;
  // What the adapter's product is multiplied by: alpha / rank, or alpha / sqrt(rank) with rslora
  // (arXiv:2312.03732).
  double scale() const { return alpha / (rslora ? std::sqrt(double(rank)) : double(rank)); }
  bool operator==(const LoraNumbers&) const = default;
};

struct LowRank {
  int64_t rank = 0;  // 0: no layer has an adapter.
  double scale = 1;
  double dropout = 0;  // Of what a multiplies, in training: the probability that x[t,d] is dropped.
  // Whether the layer of this name has one: "model.layers.0.self_attn.q_proj". Null: all have one.
  std::function<bool(absl::string_view module)> adapts = nullptr;
};

// What follows the layer's name in the names of its matrices a and b. The names are those of PEFT.
inline constexpr char kLowRankDown[] = ".lora_A.weight";
inline constexpr char kLowRankUp[] = ".lora_B.weight";

inline bool IsLowRank(absl::string_view parameter) {
  return absl::EndsWith(parameter, kLowRankDown) || absl::EndsWith(parameter, kLowRankUp);
}

// Returns the name of the layer that has this weight.
inline absl::string_view ModuleOf(absl::string_view weight) {
  return absl::StripSuffix(weight, ".weight");
}

}  // namespace trainyard
