// Values of a spec from their text. Errors: INVALID_ARGUMENT "wanted ..., found ...; nearest ...".

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::cli {

absl::StatusOr<uint64_t> ReadUnsigned(absl::string_view text, uint64_t max);  // 1000, 1e3
absl::StatusOr<int32_t> ReadInt32(absl::string_view text);
absl::StatusOr<double> ReadDouble(absl::string_view text);  // Finite.
absl::StatusOr<bool> ReadBool(absl::string_view text);      // true or false

// The spec's path for a name that NeMo, Megatron or AutoModel give the same setting:
// "parallelism.tensor" for "tensor_model_parallel_size" or "tp_size". Empty for other names.
std::string OurNameFor(absl::string_view name);

}  // namespace trainyard::cli
