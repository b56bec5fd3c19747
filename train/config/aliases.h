// What other frameworks call the settings of a job.

#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace trainyard {

// The spec's path for a name that NeMo, Megatron or AutoModel give the same setting:
// "parallelism.tensor" for "tensor_model_parallel_size" or "tp_size". Empty for other names.
std::string OurNameFor(absl::string_view name);

}  // namespace trainyard
