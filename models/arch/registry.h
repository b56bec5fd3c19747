// The families of models and their presets. Each family is a file in models/families/ and a line of
// the list below.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "models/arch/config.h"
#include "models/arch/hugging_face.h"
#include "models/model.h"

namespace trainyard {

struct Preset {
  std::string name;                  // "llama3-8b"
  std::vector<std::string> aliases;  // Models of the same sizes: "llama3.3-70b-instruct".
  ModelConfig config;
};

struct Family {
  std::string name;
  ModelConfig defaults;  // For an architecture given inline; sizes are 0.
  // Properties that are the same for all models of the family; for the catalogue.
  std::string activation;  // "swiglu", "gelu"
  bool gated = false;      // The MLP has a gate matrix.
  std::string norm;        // "rmsnorm", "layernorm"
  bool bias = false;       // Linear layers have biases.
  std::string position;    // "rope", "learned_absolute"
  std::vector<Preset> presets;

  // The table of fields: calls visit(rule, field) for each field, in the order of fields in files.
  void (*visit)(ModelConfig& config, FieldVisit visit) = nullptr;
  // Sets the fields that follow from `given` fields and are not given themselves. `before` is the
  // configuration before the given fields replaced their old values.
  void (*complete)(const ModelConfig& before, const GivenFields& given, FieldProblems& problems,
                   ModelConfig& config) = nullptr;
  // Adds the problems that concern several fields. The rules of the fields check each field alone.
  void (*check)(const ModelConfig& config, FieldProblems& problems) = nullptr;
  ModelFacts (*facts)(const ModelConfig& config) = nullptr;
  std::unique_ptr<Model> (*create)(const ModelConfig& config) = nullptr;  // `config` is valid.
  std::optional<HfTable> hf = {};  // Absent: `transformers` has no such models.
};

// Calls X(Name) for each family, in the order of the catalogue. models/families/ defines
// `Family NameFamily()`.
#define TRAINYARD_FOR_EACH_FAMILY(X) \
  X(Llama)                           \
  X(Gpt3)                            \
  X(Qwen3Moe)                        \
  X(GptOss)                          \
  X(Dit)                             \
  X(Qwen2)                           \
  X(Qwen3)                           \
  X(Mixtral)                         \
  X(Nemotron)                        \
  X(Gemma3)                          \
  X(DeepseekV3)                      \
  X(NemotronH)

#define TRAINYARD_DECLARE_FAMILY(Name) Family Name##Family();
TRAINYARD_FOR_EACH_FAMILY(TRAINYARD_DECLARE_FAMILY)
#undef TRAINYARD_DECLARE_FAMILY

const std::vector<Family>& Families();
const Family* FindFamily(absl::string_view name);  // Null if unknown.
std::vector<std::string> FamilyNames();

// Finds a preset by name or alias. The error NOT_FOUND says which known name is near.
absl::StatusOr<Preset> FindPreset(absl::string_view name);
std::vector<std::string> PresetNames();  // In the order of the table; without aliases.

// Makes the model of a configuration. CHECKs that `config` is valid (Validate).
std::unique_ptr<Model> CreateModel(const ModelConfig& config);

}  // namespace trainyard
