// What the tests that walk all families know of each. tests/families/NAME.cc defines the FamilyCase
// of a family. Tests do not link while a family of the registry has none.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "models/arch/decoder_config.h"
#include "models/arch/registry.h"

namespace trainyard::testing {

// A further tiny model whose gradients are proved.
struct ModelVariant {
  std::string name;
  ModelConfig config;
  double expert_rows = 2;        // As RecordOptions::expert_rows.
  bool adapted = false;          // Every linear layer has an adapter, and nothing else is trained.
  bool adapted_experts = false;  // The same, and the experts have one, too.
};

// What a publisher says of a preset.
struct PublishedModel {
  const char* preset;
  double parameters = 0;  // The number of all parameters. 0: no publisher says it.
  double within = 0;      // What that number is rounded to.
  double embedding = 0;   // The parameters of the embedding alone. 0: no publisher says it.
  // The number of the parameters that a token goes through. 0: all of them.
  double active = 0;
  double active_within = 0;
  bool active_without_embedding = false;
  int64_t exact_active = 0;  // As the files of the public checkpoint have them; 0: not counted.
  std::map<std::string, double> numbers = {};       // Values of fields. A flag is 0 or 1.
  std::map<std::string, std::string> choices = {};  // Values of the fields that hold a name.
};

// A value that no job may have.
struct WrongValue {
  const char* field;
  const char* says;  // A part of the message.
  void (*change)(ModelConfig& config);
};

// How ranks divide a tiny model.
struct LayoutSizes {
  int64_t tensor = 1, context = 1, pipeline = 1;  // Numbers of ranks.
  int64_t layers = 2;
  int64_t sequence = 2;  // May be changed.
  int64_t samples = 1;   // In a micro-batch of a rank. May be changed.
};

// A part of a model that a job freezes, by patterns of a job spec.
struct FrozenPart {
  const char* name;
  std::vector<std::string> frozen, trainable;
};

// Fields of an architecture in a job spec, with changes that must each change training.
struct FieldChanges {
  std::string architecture;  // A JSON merge patch (RFC 7396) of a small Llama's architecture.
  std::vector<std::pair<std::string, std::string>> changes;  // Field and value of the map `fields`.
};

struct FamilyCase {
  std::string name;  // The family.
  // Null: the family's struct is a DecoderConfig, or the family is no decoder.
  DecoderConfig& (*as_decoder)(ModelConfig& config) = nullptr;
  bool is_decoder = true;
  ModelConfig (*tiny)();  // Each field that only this family has changes what the model computes.
  std::vector<ModelVariant> (*variants)() = nullptr;
  std::vector<PublishedModel> published;  // One for each preset.
  const char* wrong_preset = "";          // The preset whose values `wrong` changes.
  std::vector<WrongValue> wrong = {};
  // The closed form of the training FLOPs of one token. `sequence` is a number of tokens.
  double (*flops)(const ModelConfig& config, double sequence);
  // Sizes for a layout; those of a decoder are set before. Everything divides, and unevenly where
  // that is legal. Nothing divides by values near zero, because this amplifies rounding.
  void (*size_layout)(ModelConfig& config, LayoutSizes& sizes) = nullptr;
  std::vector<FrozenPart> (*parts)(const ModelConfig& config);
  // With tied embeddings the new weights amplify rounding (the test Conditioning).
  bool amplifies_rounding_if_tied = false;
  FieldChanges fields = {};
  GivenFields emulated = {};  // Own sizes for a run on the emulated GPU, which is slow.
  GivenFields measured = {};  // The same for a run of each op beside the CPU's.
  // The same for a base in NF4: a tensor rank has whole blocks, where it has two heads.
  GivenFields nf4 = {};
};

#define TRAINYARD_DECLARE_FAMILY_CASE(Name) FamilyCase Name##Case();
TRAINYARD_FOR_EACH_FAMILY(TRAINYARD_DECLARE_FAMILY_CASE)
#undef TRAINYARD_DECLARE_FAMILY_CASE

const std::vector<FamilyCase>& FamilyCases();
const FamilyCase& CaseOf(absl::string_view family);  // CHECKs that there is one.
inline ModelConfig TinyOf(absl::string_view family) { return CaseOf(family).tiny(); }

// What the structs of the families of decoders have in common.
DecoderConfig& AsDecoder(ModelConfig& config);
inline const DecoderConfig& AsDecoder(const ModelConfig& config) {
  return AsDecoder(const_cast<ModelConfig&>(config));
}
const DecoderConfig* FindDecoder(const ModelConfig& config);  // Null: it is no decoder.

bool HasField(const ModelConfig& config, absl::string_view name);

}  // namespace trainyard::testing
