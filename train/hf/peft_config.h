// adapter_config.json, in which PEFT says what an adapter is: written by `trainyard export`, read
// by `trainyard import`. Source: LoraConfig and PeftConfigMixin of PEFT 0.21.

#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "models/program/low_rank.h"
#include "train/hf/peft_patterns.h"

namespace trainyard {

inline constexpr char kAdapterConfigName[] = "adapter_config.json";
inline constexpr char kAdapterWeightsName[] = "adapter_model.safetensors";

// What an export says. Names are those of modules in the memory of `transformers`.
struct PeftConfigJson {
  const LoraNumbers& numbers;
  const std::set<std::string>&targets, &saved, &parameters;
  bool transposed = false;  // Layers of the base have [in, out] matrices.
  std::string base = {};    // Empty: not known.
};
std::string ToJson(const PeftConfigJson& config);

// The modules that target_modules or exclude_modules names.
struct PeftModules {
  std::vector<std::string> ends = {};          // Ends of names.
  std::optional<PeftPattern> expression = {};  // If there is one, it counts.
  bool unread = false;                         // An expression that is not read.
};

// What a directory says. Immutable.
struct PeftConfig {
  LoraNumbers numbers;  // Of the layers that no pattern names.
  // What layers have instead. The first pattern that matches a layer counts.
  std::vector<std::pair<PeftPattern, int64_t>> ranks = {};
  std::vector<std::pair<PeftPattern, double>> alphas = {};
  double dropout = 0;
  PeftModules targets = {}, excluded = {};
  std::vector<std::string> parameters = {};      // Ends of names of experts' parameters.
  std::vector<std::string> saved = {};           // Ends of modules' names.
  std::optional<std::set<int64_t>> layers = {};  // Those that have adapters. Absent: all.
  bool transposed = false;
  std::string base = {};  // The directory, or its name on the Hugging Face Hub. Empty: not said.

  // The numbers of the adapter of a layer, or of a parameter of experts. `name` is the whole name.
  LoraNumbers NumbersOf(absl::string_view name) const;
  // Whether it is known which layers PEFT gives an adapter.
  bool KnowsTargets() const { return !targets.unread && !excluded.unread; }
  // Whether PEFT gives the layer of this name an adapter. KnowsTargets must hold.
  bool Targets(absl::string_view module) const;
  // Whether PEFT gives the parameter of this name an adapter.
  bool TargetsParameter(absl::string_view name) const;
  // Whether PEFT trains the parameter of this name as a whole.
  bool Saves(absl::string_view parameter) const;
};

// Reads the text of adapter_config.json. INVALID_ARGUMENT: one line for each key whose value has no
// meaning here, with the legal ones. DATA_LOSS: the text is no JSON object.
absl::StatusOr<PeftConfig> ParsePeftConfig(absl::string_view text);

}  // namespace trainyard
