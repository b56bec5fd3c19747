// Records the rounding of an operand to an 8-bit format with scales (kernels/products/quantize.h).

#pragma once

#include <string>
#include <vector>

#include "models/program/recorder.h"

namespace trainyard::ops {

// So many numbers of a dim follow one another on each of the ranks that differ along these axes.
struct RunOfDim {
  int64_t length = 0;
  AxisSet axes = {};
  std::string weight = {};  // Whose dim it is, if the product has several weights; "": the first.
};

struct DimOf {
  DividedBlock::Dim dim = DividedBlock::Dim::kOutputs;
  AxisSet axes = {};                // Over which ranks divide the dim.
  std::vector<RunOfDim> runs = {};  // Of which a rank's part consists.
};

struct OperandOf {
  Value value;             // A matrix: an activation, a gradient, or a weight.
  OperandFormat format;    // With scaling.
  int summed = 0;          // The dim that the product sums.
  DimOf dims[2] = {};      // The two dims.
  AxisSet varying = {};    // As of the other operand, for a weight.
  std::string weight;      // Of the product, which names the operand's history, if it has one,
  const char* what = "?";  // together with this word (models/program/amax_history.h).
};

// Returns the rounded operand, by rows and by columns; RemoveDead leaves the copies that are read.
// Ranks that divide a block of numbers with one scale agree on the block's greatest value. An
// activation that was rounded before in the same way, with a scale from the same history if from
// one, is not rounded again; a weight is, unless the recorder's WeightRounding keeps it for its
// block. Each product has histories of its own, whichever other products read the same value, and
// all layouts have the same ones. Blocks that the layout divides are added to the program's
// divided_blocks.
Quantized Quantize(Recorder& recorder, const OperandOf& operand);

}  // namespace trainyard::ops
