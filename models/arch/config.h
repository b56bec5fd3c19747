// The configuration of a model of any family, held by value. A ModelConfig contains the family's
// own struct; the functions below read and change that struct through the family's table of fields
// (fields.h). registry.h lists the families.

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

// Every field has a value: nothing is left to a default.
class ModelConfig {
 public:
  ModelConfig() = default;  // Belongs to no family.
  template <typename Config>
  ModelConfig(absl::string_view family, Config config)
      : family_(family), config_(std::move(config)) {}

  const std::string& family() const { return family_; }

  // Returns the family's struct. CHECKs that the struct is a Config; each architecture knows its
  // own type.
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
  std::vector<std::string> choices = {};  // The names of all values, if the field is a choice.
};
// Lists the fields in the order of the family's table. Returns an empty list if the family is not
// registered.
std::vector<Field> FieldsOf(const ModelConfig& config);
// CHECKs that the family has the field.
void SetField(ModelConfig& config, absl::string_view name, const FieldValue& value);

// The sizes of a model's mixtures of experts.
struct ExpertFacts {
  int64_t experts = 0;
  int64_t top_k = 0;
  int64_t layers = 0;   // Layers that have experts.
  double aux_loss = 0;  // Weight of the load-balancing term in the loss; 0: none.
};

// The sizes that the published FLOPs formulas use (models/arch/conventions.h).
struct FormulaSizes {
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t value_head_dim = 0;     // 0: head_dim.
  int64_t attention_layers = -1;  // -1: all layers.
  int64_t attention_weights = 0;  // Elements of the matrices of a layer's attention. 0: those of
                                  // query, key and value heads, and of the output projection.
  int64_t windowed_layers = 0;    // Layers whose attention sees `window` tokens.
  int64_t window = 0;
  int64_t mlp_width = 0;    // Width of all MLPs that one token goes through.
  int64_t mlp_layers = -1;  // -1: all layers.
  int64_t mlp_weights = 0;  // Elements of the matrices of these MLPs. 0: those of mlp_width.
  int64_t mamba_layers = 0;
  int64_t mamba_width = 0;  // Heads x dims of a head.
  int64_t mamba_heads = 0;
  int64_t mamba_groups = 0;
  int64_t mamba_state = 0;
  // NeMo AutoModel's formula for the family takes the width of all heads for that of the model.
  bool automodel_heads_of_hidden = false;
};

// The facts about a model of any family that parallel axes, data, schedules and formulas need.
struct ModelFacts {
  int64_t layers = 0;
  int64_t max_sequence = 0;
  bool one_sequence = false;  // All sequences have max_sequence tokens.
  int64_t vocab = 0;          // 0: the model reads no text.
  int64_t kv_heads = 0;       // Replicated if there are more tensor ranks than heads.
  std::optional<ExpertFacts> experts = {};
  // How many tokens before its own a token reads through the convolution of a recurrent layer.
  // 0: no layer is recurrent.
  int64_t convolved_tokens = 0;
  FormulaSizes sizes = {};
};
ModelFacts FactsOf(const ModelConfig& config);  // The family must be registered.

// Returns the first field, or "family", in which `found` must not differ from `wanted` for this
// use: "hidden is 64, wanted 128". Returns nullopt if there is none.
std::optional<std::string> FirstDifference(const ModelConfig& found, const ModelConfig& wanted,
                                           MayDiffer use);

// The fields of a model that a user gave: overrides of a preset, or an architecture given inline.
struct GivenModel {
  std::string family = {};  // May be "" together with a preset.
  GivenFields fields = {};
};

// Replaces the given fields in `config`, and the fields that follow from them by the family's
// rules. `path` is the path of the fields in the spec: "model.overrides". Adds a violation if
// `given` names another family.
ModelConfig Override(ModelConfig config, const GivenModel& given, Violations& violations,
                     absl::string_view path);

// Builds the configuration of an architecture given inline: the family's defaults, replaced by the
// given fields. `path` is the path of the fields in the spec: "model.architecture". Adds a
// violation for each required field that is missing, and for an unknown family.
ModelConfig FromFields(const GivenModel& given, Violations& violations, absl::string_view path);

// Adds a violation for each field that is outside its limits or contradicts another field. A
// violation names the field below `path`, the value found and the nearest legal value.
void Validate(const ModelConfig& config, Violations& violations, absl::string_view path);

// Limits of the fields. Job specs have the same limits.
inline constexpr int64_t kMaxLayers = 1024;
inline constexpr int64_t kMaxHidden = 1 << 16;
inline constexpr int64_t kMaxFfn = 1 << 18;
inline constexpr int64_t kMaxHeads = 1024;
inline constexpr int64_t kMaxHeadDim = 256;  // kernels/attention/attention.h
inline constexpr int64_t kMaxVocab = 1 << 21;
inline constexpr int64_t kMaxVocabMultiple = 1 << 16;  // Divides kMaxVocab.
inline constexpr int64_t kMaxSequence = 1 << 20;
inline constexpr int64_t kMaxExperts = 4096;

}  // namespace trainyard
