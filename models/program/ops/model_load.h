// The loss that balances the load of all layers together. A layer's gradient needs the load of all
// layers, which is known after the last one. So the load passes from layer to layer as a sum, and
// what flows back as its gradient is the total: each layer takes its gradient and its part of the
// loss from the total, and hands the total on to the layer before.
//
// The part of a layer is coefficient * E * sum_e fraction[e] mean_t p[t,e], as in
// kernels/experts/load_balance.h, with the fractions of all choices in all layers. With an even
// load it is `coefficient`.
//
// Source: load_balancing_loss_func of `transformers`, whose factor is coefficient * layers / top_k.

#pragma once

#include "kernels/experts/router.h"
#include "models/program/recorder.h"

namespace trainyard::ops {

struct LayerLoad {
  RouterScoring scoring;
  double coefficient;
};

// Adds the choices of a layer, experts [T, K] by logits [T, E], to the load [1, E] of the layers
// before it. Invalid: there is none. Returns the load of all of them.
Value AddLoad(Recorder& recorder, Value logits, Value experts, Value load,
              const LayerLoad& options);
// Ends the sum: a root of the backward pass. The layers add the loss to StepState.auxiliary_loss in
// the backward pass.
void BalanceLoad(Recorder& recorder, Value load);

}  // namespace trainyard::ops
