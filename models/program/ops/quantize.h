// Records the rounding of an operand to an 8-bit format with scales (kernels/quantize.h).

#pragma once

#include <string>

#include "models/program/recorder.h"

namespace trainyard::ops {

struct OperandOf {
  Value value;            // A matrix: an activation, a gradient, or a weight.
  OperandFormat format;   // With scaling.
  int summed = 0;         // The dim that the product sums.
  AxisSet axes[2] = {};   // The axes over which ranks divide each of the two dims.
  AxisSet varying = {};   // As of the other operand, for a weight.
  std::string name = {};  // Of its history, if the format has one.
};

// Returns the rounded operand. Ranks that divide a block of numbers with one scale agree on the
// block's greatest value. An activation that was rounded before in the same way, with a scale from
// the same history if from one, is not rounded again; a weight is, so that no rounded weights are
// kept from forward to backward. So each product has histories of its own, whichever other
// products read the same value, and all layouts have the same ones.
Quantized Quantize(Recorder& recorder, const OperandOf& operand);

}  // namespace trainyard::ops
