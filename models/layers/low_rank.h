// Low-rank adapters of linear layers and of experts (LoRA; Hu et al. 2021, arXiv:2106.09685,
// section 4.1). Beside a weight w [out, in] that is not trained, two narrow matrices are:
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
// With magnitudes (DoRA; Liu et al. 2024, arXiv:2402.09353), each row of the adapted weight
// w + scale b a has a trained norm m [out] in place of its own:
//
//   y = (m / |w + scale b a|) (x w^T + scale (x a^T) b^T) + bias
//
// The norm |w + scale b a| of each row has no gradient, as in PEFT. m begins as the norms of w. The
// parameter is what training adds to these norms, and begins with zeros: it needs no base when it
// is made, and keeps its precision where weights are rounded. With dropout, x is what is left of
// it, and x w^T of the rest is added as it is.
//
// Experts: each expert has an a and a b of its own beside each of its two products. Gate and up,
// which share the first product, share its adapter, too: b [outputs of gate and of up, rank]. This
// is the form that adapters of experts have in PEFT (target_parameters). There is no dropout and no
// magnitude. The matrices are divided over ranks as the experts are.
//
// Tensor ranks: where w is divided by rows, a is whole and b is divided like w; only the narrow
// rows x a^T are gathered. Where w is divided by columns, a is divided like w and b is whole; only
// the narrow sums are scattered, and the squares of the norms are summed over the ranks.

#pragma once

#include <functional>
#include <vector>

#include "models/program/ops/ops.h"
#include "models/program/parameter.h"
#include "models/program/recorder.h"

namespace trainyard {

// The product of a layer: x times its weight, plus the bias (may be invalid).
using LayerProduct = std::function<Value(Value x, Value bias, ProductKind kind)>;

// Each returns the product, changed by the adapters of the weights if the weights have adapters
// (Recorder::Adapts). `weights` have the rows of one product, one after another; all or none of
// them have an adapter.

// x [T, in], outputs [n T, out / n]. The weights are divided by rows.
Value AdaptedColumns(Recorder& recorder, const std::vector<ParameterSpec>& weights, Value x,
                     Value bias, const LayerProduct& product);
// x [n T, in / n], outputs [T, out], for a weight that is divided by columns; or x [T, in] for one
// that is not divided.
Value AdaptedRows(Recorder& recorder, const ParameterSpec& weight, Value x, Value bias,
                  const LayerProduct& product);

// Returns the adapter of the experts' product with these weights, which share a storage: all have
// the same AdaptedLayerOf. The values are invalid if the layer has no adapter.
ops::ExpertAdapter AdapterOfExperts(Recorder& recorder, const std::vector<ParameterSpec>& weights);

// Returns ops::Linear of a weight that is not divided, with what its adapter changes.
Value AdaptedLinear(Recorder& recorder, Value x, const ParameterSpec& weight, Value bias = {});

}  // namespace trainyard
