// A model that carries two values from block to block: a row for each token, and a condition, which
// is a row for each sample. All tensor and context ranks of a sample hold the sample's condition.
// The blocks differ: some read the condition, some change it, some pass it on, and the last blocks
// leave it out. A sample also has two inputs, which blocks on any stage read: an integer, the
// class, and reals, the level. The model runs only in f64 on the CPU.

#pragma once

#include <memory>

#include "models/arch/decoder_config.h"
#include "models/model.h"

namespace trainyard::testing {

// Makes the model. `sizes` has the layers, widths, heads and vocabulary.
std::unique_ptr<Model> MakeConditioned(const DecoderConfig& sizes);

// Returns whether layer `layer` reads the condition and changes the condition for the layers after.
inline bool ReadsCondition(int64_t layer) { return layer % 3 != 2; }

}  // namespace trainyard::testing
