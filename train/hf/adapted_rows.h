// Which rows of an adapter's outputs belong to a weight.

#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "models/arch/config.h"

namespace trainyard {

// The adapter's matrix b is [outputs, rank]; the weight, which is [rows, in], has some of its rows.
struct AdaptedRows {
  std::string layer;  // Beside which the adapter stands: its matrix a is LAYER.lora_A.weight.
  int64_t first = 0;
  int64_t outputs = 0;
};

// Returns the rows of each expert's weights, by the weight's name in checkpoints. Weights of an
// expert may share an adapter (ParameterSpec::adapted_as). All other weights have adapters beside
// their own layers. `model` must be valid.
std::map<std::string, AdaptedRows> AdaptedRowsOfExperts(const ModelConfig& model);

}  // namespace trainyard
