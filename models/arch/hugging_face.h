// How a family's models look in a Hugging Face directory (config.json and safetensors). Each family
// that has such a form declares it as a table beside its architecture. One table serves both
// directions: `trainyard import` reads by it, and `trainyard export` writes by it (models/hf/).

#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "models/arch/config.h"

namespace trainyard {

// A key of config.json whose value is a field of the family's table (models/arch/fields.h). A key
// with the value null counts as absent, unless the absent value is true. If two keys have the same
// field, they must have the same value.
struct HfKey {
  const char* key;    // "num_hidden_layers"
  const char* field;  // "layers"
  // The value that an absent key stands for: a constant, or one that follows from fields whose keys
  // come before this one in the table. If both are unset, the key must be there. If both are set,
  // an absent key stands for the constant, and null for the other.
  std::optional<FieldValue> absent = {};
  FieldValue (*derived)(const ModelConfig&) = nullptr;
  // Another spelling of the key, which is read and never written.
  const char* alias = nullptr;
  // 0 is refused, because it means something else to this program, and written as null.
  bool nonzero = false;
  // A token. A negative one counts from the end of the vocabulary, as in PyTorch. The field's -1,
  // no token, is written as null.
  bool is_token = false;
  // A key of a scaling of rotary wavelengths that may also stand at the top of config.json.
  bool also_at_top = false;
};

// A key that must have one value, because the architecture has no other. If it is absent, it counts
// as having this value, unless it is `required`. Null counts as null, false and an empty list.
struct HfFixed {
  const char* key;
  const char* value;  // JSON: "\"silu\"", "false", "[]".
  bool required = false;
};

// A key that changes nothing in training from the directory's weights.
struct HfIgnored {
  const char* key;
  // JSON: the value with which the key means nothing; another value is refused. Null: any value.
  const char* value = nullptr;
};

// The keys of the loss that keeps the load of experts even. They set moe.aux_loss and its scope.
struct HfBalance {
  const char* coefficient;
  double absent;        // What an absent coefficient stands for.
  const char* enabled;  // true: the loss is added. Absent, null and false: training has none.
};

// A key whose value follows from the configuration, for example a list with an entry for each
// layer. If the key is there, it must have this value.
struct HfDerived {
  const char* key;
  nlohmann::json (*value)(const ModelConfig& config);
  bool written = true;  // False: only some releases have the key; it is compared, not written.
};

// A field with the value that it has.
struct HfMeant {
  const char* field;
  FieldValue value;
};

// A way to scale rotary wavelengths: the object rope_scaling of config.json, or rope_parameters of
// later releases.
struct HfRopeScaling {
  const char* type;    // "llama3", "yarn"
  const char* factor;  // The field that is 0 if wavelengths are not scaled.
  std::vector<HfKey> keys;
  std::vector<HfFixed> fixed = {};
  // Fields that the type has no keys for, with the values that it means. Of two types with one
  // factor, an export writes the first one whose values the model has.
  std::vector<HfMeant> meant = {};
};

// Where a parameter lies in the directory, if not as a whole tensor of the same name and shape.
// In both names, '#' stands for a number. In `parameter`, '@' stands for a number, too: the place
// of the parameter in dim 0 of the tensor, which has the parameters of all these numbers.
struct HfTensorRule {
  const char* parameter;    // "model.layers.#.mlp.experts.@.gate_proj.weight"
  const char* tensor;       // "model.layers.#.mlp.experts.gate_up_proj"
  bool transposed = false;  // The tensor's matrix is [in, out].
  // The rows of so many parameters alternate in the (transposed) matrix; this is number `part`.
  int64_t parts = 1;
  int64_t part = 0;
  // The tensor may also lie there as TENSOR_blocks and TENSOR_scales in MXFP4 (models/hf/mxfp4.h),
  // never transposed.
  bool mxfp4 = false;
};

// Directories of another model_type that are otherwise the same. Exports have the table's.
struct HfOtherType {
  const char* model_type;
  const char* architecture;
  std::vector<HfFixed> fixed = {};
  // Keys that must be there, because absent ones mean something else than in the table.
  std::vector<const char*> required = {};
};

// A part of a name, and what replaces it.
struct HfRenamed {
  const char* from = nullptr;
  const char* to = nullptr;
};

struct HfTable {
  std::string model_type;    // "llama"
  std::string architecture;  // "LlamaForCausalLM"
  std::vector<HfKey> keys;
  // Keys about rotary positions. They lie in rope_parameters, or beside rope_scaling at the top.
  std::vector<HfKey> rope_keys = {};
  std::vector<HfRopeScaling> rope_scalings = {};
  // rope_parameters or rope_scaling must be there, because `transformers` scales without them, too.
  bool rope_required = false;
  std::vector<HfFixed> fixed = {};
  std::vector<HfDerived> derived = {};
  std::optional<HfBalance> balance = {};
  // Keys that mean nothing for training, besides those of all families
  // (models/hf/meaningless_keys.h). Any other key is refused, unless its value is null or false.
  std::vector<HfIgnored> ignored = {};
  std::vector<HfTensorRule> tensors = {};
  // A part of tensors' names in the directory, and what `transformers` calls it in memory, where
  // PEFT looks for names: {".block_sparse_moe.", ".mlp."}. Null: the names are the same.
  HfRenamed in_memory = {};
  // A directory with a tied head may have the same numbers a second time, as lm_head.weight.
  const char* embedding = "model.embed_tokens.weight";
  // What the names of a directory's tensors may lack at their beginning: some releases were saved
  // without the head around the model. Exports have it.
  const char* optional_prefix = "";
  // How names of tensors end that mean nothing: tables that follow from the configuration.
  std::vector<const char*> ignored_tensors = {};
  // The key that says how many layers come after the model's last one, to predict further tokens.
  // Import leaves these layers out. Null: there are none.
  const char* further_layers = nullptr;
  int64_t further_absent = 1;  // How many there are if the key is absent.
  // What the names of these layers' tensors begin with. Null: their names go on from those of the
  // model's layers.
  const char* further_tensors = nullptr;
  std::optional<HfOtherType> other = {};
  // Returns a config.json of another release in the form that the table reads. Whatever it does not
  // know it leaves as it is. Null: all releases have the same form.
  nlohmann::json (*rewritten)(nlohmann::json json) = nullptr;
};

}  // namespace trainyard
