// The names that other frameworks use for the settings of a job.

#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "train/config/yaml.h"

namespace trainyard {

// Returns the path in a spec of the setting that NeMo, Megatron, AutoModel or a config.json call
// `name`: "parallelism.tensor" for "tensor_model_parallel_size" or "tp_size". Returns "" for other
// names. Of several settings, returns the first one whose section `spec` has: that of the spec's
// own optimizer or schedule. If it has none of them, returns the first one.
//
// The names are declared with the fields, in the proto files, and in the families' tables of
// config.json.
std::string OurNameFor(absl::string_view name, const YamlNode& spec = {});

// Returns our name of a value, in upper case, that other frameworks name differently, or that is
// nearest in meaning: "BF16" for "FP8". Returns "" for other values.
std::string OurValueFor(absl::string_view value);

}  // namespace trainyard
