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

#include "common/host_device.h"
#include "kernels/device/expect.h"
#include "kernels/device/step_state.h"
#include "kernels/sums/sum_words.h"

namespace trainyard {

struct LionOptions {
  double beta1;         // in [0, 1)
  double beta2;         // in [0, 1)
  double weight_decay;  // >= 0
};

struct LionArgs {
  Tensor master;     // [n]  in/out, f64 | f32
  Tensor m;          // [n]  in/out, dtype of master
  ConstTensor grad;  // [n]  dtype of master
  LionOptions options;
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
  const LionOptions& options = args.options;
  CHECK(options.beta1 >= 0 && options.beta1 < 1) << "lion beta1: " << options.beta1;
  CHECK(options.beta2 >= 0 && options.beta2 < 1) << "lion beta2: " << options.beta2;
  CHECK(options.weight_decay >= 0) << "lion weight_decay: " << options.weight_decay;
  CHECK(args.state != nullptr) << "lion state: none";
}

// What all elements of a step share, computed in f64 and rounded to A, the dtype of master.
template <typename A>
struct LionCoefficients {
  A beta1, beta2, fresh1, fresh2, clip;
  A keep;  // Factor of weight decay.
  A rate;
};

template <typename A>
TRAINYARD_HOST_DEVICE LionCoefficients<A> CoefficientsOf(const LionOptions& options,
                                                         const StepState& state) {
  return {.beta1 = A(options.beta1),
          .beta2 = A(options.beta2),
          .fresh1 = A(1 - options.beta1),
          .fresh2 = A(1 - options.beta2),
          .clip = A(state.clip_factor),
          .keep = A(1 - state.learning_rate * options.weight_decay),
          .rate = A(state.learning_rate)};
}

template <typename A>
struct LionElement {
  A master, m;
};

// One element's update. Its operands are values: with references GCC does not vectorise the loop of
// the CPU's kernel well.
template <typename A>
TRAINYARD_HOST_DEVICE LionElement<A> LionUpdate(LionElement<A> old, A grad, LionCoefficients<A> k) {
  const A g = grad * k.clip;
  const A c = k.beta1 * old.m + k.fresh1 * g;
  const A m = k.beta2 * old.m + k.fresh2 * g;
  return {k.keep * old.master - k.rate * (A(c > 0) - A(c < 0)), m};
}

}  // namespace trainyard
