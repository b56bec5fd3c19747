// One AdamW step over a flat range of parameters. With t = state->step, lr = state->learning_rate
// and g = grad * state->clip_factor:
//
//   m = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
//   update = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
//   master = master - lr (weight_decay * master + update)
//   compute = master, rounded
//
// Adds the words of master, m and v to state->read as they were before, and to state->written as
// they are afterwards. A step must read the same words as the step before wrote
// (train/trainer/state_check.h).
//
// Changes nothing if state->finite == 0. Computed in the dtype of master. Bitwise deterministic for
// any thread count. Letters: n elements. Source: Loshchilov & Hutter 2019, arXiv:1711.05101,
// algorithm 2, with decay multiplied by the learning rate as in PyTorch.

#pragma once

#include "kernels/device/expect.h"
#include "kernels/device/step_state.h"
#include "kernels/sums/sum_words.h"

namespace trainyard {

struct AdamWArgs {
  Tensor master;        // [n]  in/out, f64 | f32
  Tensor m;             // [n]  in/out, dtype of master
  Tensor v;             // [n]  in/out, dtype of master
  ConstTensor grad;     // [n]  dtype of master
  double beta1;         // in [0, 1)
  double beta2;         // in [0, 1)
  double eps;           // > 0
  double weight_decay;  // >= 0
  StepState* state;     // device memory; `read` and `written` are added to
  Tensor compute = {};  // [n]  out, bf16 or dtype of master; absent when its data is null
};

inline void Check(const AdamWArgs& args) {
  const int64_t n = args.master.elements();
  const DType dtype = args.master.dtype;
  ExpectDType("adamw master", args.master, {DType::kF64, DType::kF32});
  ExpectData("adamw master", args.master);
  ExpectElements("adamw m", args.m, dtype, n);
  ExpectElements("adamw v", args.v, dtype, n);
  ExpectElements("adamw grad", args.grad, dtype, n);
  if (args.compute.data != nullptr) {
    ExpectDType("adamw compute", args.compute, {DType::kBF16, dtype});
    ExpectElements("adamw compute", args.compute, args.compute.dtype, n);
  }
  CHECK(args.beta1 >= 0 && args.beta1 < 1) << "adamw beta1: " << args.beta1;
  CHECK(args.beta2 >= 0 && args.beta2 < 1) << "adamw beta2: " << args.beta2;
  CHECK(args.eps > 0) << "adamw eps: " << args.eps;
  CHECK(args.weight_decay >= 0) << "adamw weight_decay: " << args.weight_decay;
  CHECK(args.state != nullptr) << "adamw state: none";
}

}  // namespace trainyard
