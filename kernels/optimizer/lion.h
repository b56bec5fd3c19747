// One Lion step over a flat range of parameters. With lr = state->learning_rate and
// g = grad * state->clip_factor:
//
//   c = beta1 m + (1 - beta1) g
//   master = master - lr (weight_decay * master + sign(c))
//   m = beta2 m + (1 - beta2) g
//   compute = master, rounded
//
// The sign of 0 is 0. Adds the words of master and m to state->read as they were before, and to
// state->written as they are afterwards, as in adamw.h; v of both is left as it is.
//
// Changes nothing if state->finite == 0. Computed in the dtype of master. Bitwise deterministic for
// any thread count. Letters: n elements. Source: Chen et al. 2023, arXiv:2302.06675, algorithm 2.

#pragma once

#include "kernels/device/expect.h"
#include "kernels/device/step_state.h"
#include "kernels/sums/sum_words.h"

namespace trainyard {

struct LionArgs {
  Tensor master;        // [n]  in/out, f64 | f32
  Tensor m;             // [n]  in/out, dtype of master
  ConstTensor grad;     // [n]  dtype of master
  double beta1;         // in [0, 1)
  double beta2;         // in [0, 1)
  double weight_decay;  // >= 0
  StepState* state;     // device memory; `read` and `written` are added to
  Tensor compute = {};  // [n]  out, bf16 or dtype of master; absent when its data is null
};

inline void Check(const LionArgs& args) {
  const int64_t n = args.master.elements();
  const DType dtype = args.master.dtype;
  ExpectDType("lion master", args.master, {DType::kF64, DType::kF32});
  ExpectData("lion master", args.master);
  ExpectElements("lion m", args.m, dtype, n);
  ExpectElements("lion grad", args.grad, dtype, n);
  if (args.compute.data != nullptr) {
    ExpectDType("lion compute", args.compute, {DType::kBF16, dtype});
    ExpectElements("lion compute", args.compute, args.compute.dtype, n);
  }
  CHECK(args.beta1 >= 0 && args.beta1 < 1) << "lion beta1: " << args.beta1;
  CHECK(args.beta2 >= 0 && args.beta2 < 1) << "lion beta2: " << args.beta2;
  CHECK(args.weight_decay >= 0) << "lion weight_decay: " << args.weight_decay;
  CHECK(args.state != nullptr) << "lion state: none";
}

}  // namespace trainyard
