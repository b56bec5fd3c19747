// The architectures and their presets. An explicit table: one line a family (registry.cc).

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "models/arch/config.h"
#include "models/model.h"

namespace trainyard {

struct Preset {
  std::string name;                  // "llama3-8b"
  std::vector<std::string> aliases;  // Of the same body: "llama3.3-70b-instruct".
  ModelConfig config;
};

struct Family {
  std::string name;
  ModelConfig defaults;  // Of an architecture given inline; sizes are 0.
  // What is fixed within the family; for the catalogue.
  std::string activation;  // "swiglu", "gelu"
  bool gated = false;      // The MLP has a gate matrix.
  std::string norm;        // "rmsnorm", "layernorm"
  bool bias = false;       // Linear layers have biases.
  std::string position;    // "rope", "learned_absolute"
  std::vector<Preset> presets;

  // The table: calls visit(rule, field) for each field, in the order in which files have them.
  void (*visit)(ModelConfig& config, FieldVisit visit) = nullptr;
  // Sets the fields that follow from others which were `given`, and are not given themselves;
  // `before` is what the given ones replaced.
  void (*complete)(const ModelConfig& before, const GivenFields& given, FieldProblems& problems,
                   ModelConfig& config) = nullptr;
  // Adds what is wrong with fields together; each alone was checked by its rule.
  void (*check)(const ModelConfig& config, FieldProblems& problems) = nullptr;
  ModelFacts (*facts)(const ModelConfig& config) = nullptr;
  std::unique_ptr<Model> (*create)(const ModelConfig& config) = nullptr;  // Of a valid one.
};

const std::vector<Family>& Families();
const Family* FindFamily(absl::string_view name);  // Null if unknown.
std::vector<std::string> FamilyNames();

// By name or alias. NOT_FOUND says which name is near.
absl::StatusOr<Preset> FindPreset(absl::string_view name);
std::vector<std::string> PresetNames();  // Without aliases; in the order of the table.

// `config` must be valid (Validate).
std::unique_ptr<Model> CreateModel(const ModelConfig& config);

}  // namespace trainyard
