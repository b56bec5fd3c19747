// The configuration of a model of any family, as a value: its family's own struct, and what can be
// done with that struct by the family's table (fields.h). registry.h has the families.

#pragma once

#include <any>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/check.h"
#include "common/violations.h"
#include "models/arch/fields.h"

namespace trainyard {

// Complete: every field has its value.
class ModelConfig {
 public:
  ModelConfig() = default;  // Of no family.
  template <typename Config>
  ModelConfig(absl::string_view family, Config config)
      : family_(family), config_(std::move(config)) {}

  const std::string& family() const { return family_; }

  // The family's struct, which must be a Config: architectures know theirs.
  template <typename Config>
  Config& As() {
    Config* const config = std::any_cast<Config>(&config_);
    CHECK(config != nullptr) << "family \"" << family_ << "\" has another configuration";
    return *config;
  }
  template <typename Config>
  const Config& As() const {
    return const_cast<ModelConfig*>(this)->As<Config>();
  }

  bool operator==(const ModelConfig& other) const;

 private:
  std::string family_;  // A key of the registry: "llama", "gpt3".
  std::any config_;
};

struct Field {
  FieldRule rule;
  FieldValue value;
  std::vector<std::string> choices = {};  // The names of a choice.
};
// In the order of the family's table; empty for a family that is not registered.
std::vector<Field> FieldsOf(const ModelConfig& config);
// CHECKs that the family has the field.
void SetField(ModelConfig& config, absl::string_view name, const FieldValue& value);

// Experts that tokens are sent to.
struct ExpertFacts {
  int64_t experts = 0;
  int64_t top_k = 0;
  int64_t layers = 0;   // That have them.
  double aux_loss = 0;  // Coefficient of the load-balancing loss in the loss; 0: none.
};

// The sizes that published FLOPs formulas know (models/arch/flops.h).
struct FormulaSizes {
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t mlp_width = 0;  // Of all that one token goes through.
};

// What parallel axes, data, schedules and formulas have to know of a model, whatever its family.
struct ModelFacts {
  int64_t layers = 0;
  int64_t max_sequence = 0;
  bool one_sequence = false;  // All sequences have max_sequence tokens.
  int64_t vocab = 0;          // 0: the model reads no text.
  int64_t kv_heads = 0;       // Replicated where there are more tensor ranks.
  std::optional<ExpertFacts> experts = {};
  FormulaSizes sizes = {};
};
ModelFacts FactsOf(const ModelConfig& config);  // The family must be registered.

// Some of a model's fields, as a user gave them: overrides of a preset, or an architecture inline.
struct GivenModel {
  std::string family = {};  // May be "" beside a preset.
  GivenFields fields = {};
};

// Replaces what is given, and what follows from that by the family's rules. Another family is a
// violation. `path` is that of the fields: "model.overrides".
ModelConfig Override(ModelConfig config, const GivenModel& given, Violations& violations,
                     absl::string_view path);

// An architecture given inline: the family's defaults, then `given`. Adds a violation for each
// required field that is missing, and for an unknown family. `path` is that of the fields:
// "model.architecture".
ModelConfig FromFields(const GivenModel& given, Violations& violations, absl::string_view path);

// Every field within its limits and consistent with the others. A violation names the field below
// `path`, what was found and the nearest legal value.
void Validate(const ModelConfig& config, Violations& violations, absl::string_view path);

// Limits, also of job specs.
inline constexpr int64_t kMaxLayers = 1024;
inline constexpr int64_t kMaxHidden = 1 << 16;
inline constexpr int64_t kMaxFfn = 1 << 18;
inline constexpr int64_t kMaxHeads = 1024;
inline constexpr int64_t kMaxHeadDim = 256;  // kernels/attention.h
inline constexpr int64_t kMaxVocab = 1 << 21;
inline constexpr int64_t kMaxSequence = 1 << 20;
inline constexpr int64_t kMaxExperts = 4096;

}  // namespace trainyard
