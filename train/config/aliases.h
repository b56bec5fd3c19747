// The names that other frameworks use for the settings of a job.

#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "train/config/yaml.h"

namespace trainyard {

// Returns the path in a spec of the setting that NeMo, Megatron or AutoModel call `name`:
// "parallelism.tensor" for "tensor_model_parallel_size" or "tp_size". Returns "" for other names.
// The path is that of the optimizer and of the schedule that `spec` has, and of the first ones if
// it has none.
std::string OurNameFor(absl::string_view name, const YamlNode& spec = {});

// Returns our name of a value, in upper case, that other frameworks name differently, or that is
// nearest in meaning: "BF16" for "FP8". Returns "" for other values.
std::string OurValueFor(absl::string_view value);

}  // namespace trainyard
