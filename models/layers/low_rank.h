// Low-rank adapters of linear layers (LoRA; Hu et al. 2021, arXiv:2106.09685, section 4.1). Beside
// a weight w [out, in] that is not trained, two narrow matrices are:
//
//   y = x w^T + scale (x a^T) b^T,  a [rank, in], b [out, rank]
//
// b begins with zeros, so that the first step starts from the model as it was. a begins uniform in
// [-1/sqrt(in), 1/sqrt(in)], as in PEFT. Each projection has an adapter of its own, also where
// several projections share one product (query, key and value; gate and up).
//
// In training, dropout may drop elements of the x that a multiplies (never of the x that w
// multiplies). Projections that share a product drop the same elements; in PEFT each drops its own.
//
// Tensor ranks: where w is divided by rows, a is whole and b is divided like w; only the narrow
// rows x a^T are gathered. Where w is divided by columns, a is divided like w and b is whole; only
// the narrow sums are scattered.

#pragma once

#include <vector>

#include "models/program/parameter.h"
#include "models/program/recorder.h"

namespace trainyard {

// The next two return y plus what the adapters of the weights add, or y if the weights have no
// adapter (Recorder::Adapts). `weights` have the rows of one product, one after another; all or
// none of them have an adapter.

// x [T, in], y [n T, out / n]. The weights are divided by rows.
Value AddToColumns(Recorder& recorder, const std::vector<ParameterSpec>& weights, Value x, Value y);
// x [n T, in / n], y [T, out]. The weight is divided by columns.
Value AddToRows(Recorder& recorder, const ParameterSpec& weight, Value x, Value y);

// Returns ops::Linear of a weight that is not divided, with what its adapter adds.
Value AdaptedLinear(Recorder& recorder, Value x, const ParameterSpec& weight, Value bias = {});

}  // namespace trainyard
