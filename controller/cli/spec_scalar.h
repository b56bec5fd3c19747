// Values of a spec from their text: nothing where the text is no such value. What would be one, the
// check of specs says (train/config/validate.h).

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace trainyard::cli {

std::optional<uint64_t> ReadUnsigned(absl::string_view text, uint64_t max);  // 1000, 1e3
std::optional<int32_t> ReadInt32(absl::string_view text);
std::optional<double> ReadDouble(absl::string_view text);  // Finite.
std::optional<bool> ReadBool(absl::string_view text);      // true or false

// The spec's path for a name that NeMo, Megatron or AutoModel give the same setting:
// "parallelism.tensor" for "tensor_model_parallel_size" or "tp_size". Empty for other names.
std::string OurNameFor(absl::string_view name);

}  // namespace trainyard::cli
