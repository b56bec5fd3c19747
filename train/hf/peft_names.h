// Where PEFT's directories have what a job with an adapter trains. One table serves both
// directions: `trainyard export` writes adapter_model.safetensors by it, and `trainyard import`
// reads that file by it.

#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "models/arch/config.h"
#include "models/arch/hugging_face.h"
#include "models/hf/places.h"
#include "models/program/parameter.h"

namespace trainyard {

inline constexpr char kPeftPrefix[] = "base_model.model.";  // What PEFT wraps a model in.
inline constexpr char kPeftMagnitude[] = ".lora_magnitude_vector";

// The parameter of `transformers` that has one matrix of all experts of a layer.
struct PeftExperts {
  std::string module;     // "model.layers.0.mlp.experts"
  std::string parameter;  // "gate_up_proj"
  int64_t matrices = 1;   // The rows of so many matrices of an expert alternate in the parameter.

  std::string name() const { return module + "." + parameter; }
};

// A parameter that a job with an adapter trains, as checkpoints have it.
struct TrainedParameter {
  std::string name;
  Shape shape;
};

// What a directory of PEFT has.
struct PeftTensors {
  std::vector<HfLayout> tensors;         // With kPeftPrefix.
  std::set<std::string> targets, saved;  // Names of modules, as `transformers` has them in memory.
  std::set<std::string> parameters;      // Adapted experts, by their names there.
  bool transposed = false;               // Layers of the base have [in, out] matrices.
};

// Errors are INVALID_ARGUMENT. They begin with the name of a parameter or a module, and say why
// PEFT cannot have it.
class PeftNames {
 public:
  // `model` must be valid and of the table's family.
  PeftNames(const ModelConfig& model, const HfTable& table);

  // Returns the tensor of the weight beside which an adapter has the parameter, without kPeftPrefix
  // and with PEFT's name.
  absl::StatusOr<HfLayout> OfAdapter(const std::string& parameter) const;
  // Returns the tensor of a parameter that is trained as a whole.
  absl::StatusOr<HfLayout> OfModule(const std::string& parameter) const;
  // Returns where PEFT has the adapter of experts that is called `target` (TargetOf).
  absl::StatusOr<PeftExperts> OfExperts(const std::string& target) const;
  // OK if PEFT loads what a job trains as the parameter of this declaration.
  absl::Status Check(const ParameterSpec& spec) const;

  // Returns the tensors of a directory whose adapter consists of these parameters.
  absl::StatusOr<PeftTensors> Place(const std::vector<TrainedParameter>& trained) const;

 private:
  absl::StatusOr<HfLayout> Find(const std::string& parameter) const;
  std::string InMemory(const std::string& name) const;

  const HfRenamed in_memory_;
  const std::string embedding_;
  const bool has_experts_;
  bool tied_ = false;
  std::map<std::string, HfLayout> layouts_;     // By parameter. Without a name: not a tensor alone.
  std::map<std::string, PeftExperts> experts_;  // By target.
};

}  // namespace trainyard
