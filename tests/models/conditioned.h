// A model that carries two values from block to block: a row for each token, and a condition, a row
// for each sample, which all tensor and context ranks of the sample hold. Blocks differ: some read
// the condition, some change it, some hand it on, and the last leave it out. A sample has inputs,
// too: an integer, its class, and reals, its level, which blocks read wherever they are. For f64 on
// the CPU.

#pragma once

#include <memory>

#include "models/arch/decoder_config.h"
#include "models/model.h"

namespace trainyard::testing {

// `sizes`: layers, widths, heads and vocabulary.
std::unique_ptr<Model> MakeConditioned(const DecoderConfig& sizes);

// Whether a layer reads the condition, and changes it for the layers after it.
inline bool ReadsCondition(int64_t layer) { return layer % 3 != 2; }

}  // namespace trainyard::testing
