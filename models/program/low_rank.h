// Which layers of a recording have a low-rank adapter (models/layers/low_rank.h), and what the
// adapters' parameters are called.

#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "kernels/device/dtype.h"
#include "models/program/parameter.h"

namespace trainyard {

// The numbers of an adapter, as a job chooses them and PEFT writes them.
struct LoraNumbers {
  int64_t rank = 0;
  double alpha = 0;
  bool rslora = false;
  bool dora = false;  // The norms of the adapted weight's rows are trained, too.
  // The base's linear layers and experts are in NF4 (nf4.h), and their numbers are rounded to this
  // dtype.
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
  bool nf4 = false;         // Frozen weights of linear layers and experts are in NF4 (nf4.h).
  // Whether the layer of this name, a target (TargetOf), has one. Null: all linear layers have one,
  // and no experts.
  std::function<bool(absl::string_view target)> adapts = nullptr;
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

// Returns the name of the layer beside which the weight's adapter stands.
inline absl::string_view AdaptedLayerOf(const ParameterSpec& weight) {
  return weight.adapted_as.empty() ? ModuleOf(weight.name) : weight.adapted_as;
}

// What stands before the number of an expert in the names of its layers, and before the last part
// of a target that is theirs.
inline constexpr char kExpertsPart[] = ".experts.";

// Returns the number of the expert whose layer this is, as text, or the '*' of a declaration. ""
// if the layer is no expert's.
inline absl::string_view ExpertPartOf(absl::string_view module) {
  const size_t at = module.find(kExpertsPart);
  if (at == absl::string_view::npos) return "";
  module.remove_prefix(at + sizeof(kExpertsPart) - 1);
  const absl::string_view part = module.substr(0, module.find('.'));
  const bool is_number = part.find_first_not_of("0123456789") == absl::string_view::npos;
  return part.size() < module.size() && (part == "*" || is_number) ? part : "";
}

// Returns the name by which patterns choose the adapter of this layer. A layer of an expert has no
// number there, because all experts of a layer have an adapter or none has:
// "model.layers.0.mlp.experts.down_proj" for "model.layers.0.mlp.experts.3.down_proj". Other names
// stay as they are.
inline std::string TargetOf(absl::string_view module) {
  const absl::string_view expert = ExpertPartOf(module);
  if (expert.empty()) return std::string(module);
  const size_t begin = size_t(expert.data() - module.data());
  return absl::StrCat(module.substr(0, begin), module.substr(begin + expert.size() + 1));
}

inline bool IsTargetOfExperts(absl::string_view target) {
  return absl::StrContains(target, kExpertsPart);
}

}  // namespace trainyard
