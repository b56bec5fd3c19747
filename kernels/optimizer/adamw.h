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

#include <cmath>

#include "common/host_device.h"
#include "kernels/device/expect.h"
#include "kernels/device/step_state.h"
#include "kernels/sums/sum_words.h"

namespace trainyard {

struct AdamWOptions {
  double beta1;         // in [0, 1)
  double beta2;         // in [0, 1)
  double eps;           // > 0
  double weight_decay;  // >= 0
};

struct AdamWArgs {
  Tensor master;     // [n]  in/out, f64 | f32
  Tensor m;          // [n]  in/out, dtype of master
  Tensor v;          // [n]  in/out, dtype of master
  ConstTensor grad;  // [n]  dtype of master
  AdamWOptions options;
  StepState* state;     // device memory; `read` and `written` are added to
  Tensor compute = {};  // [n]  out, bf16 or dtype of master; absent when its data is null
};

inline void Check(const AdamWOptions& options) {
  CHECK(options.beta1 >= 0 && options.beta1 < 1) << "adamw beta1: " << options.beta1;
  CHECK(options.beta2 >= 0 && options.beta2 < 1) << "adamw beta2: " << options.beta2;
  CHECK(options.eps > 0) << "adamw eps: " << options.eps;
  CHECK(options.weight_decay >= 0) << "adamw weight_decay: " << options.weight_decay;
}

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
  Check(args.options);
  CHECK(args.state != nullptr) << "adamw state: none";
}

// What all elements of a step share, computed in f64 and rounded to A, the dtype of master.
template <typename A>
struct AdamWCoefficients {
  A beta1, beta2, fresh1, fresh2, eps, clip;
  A keep;  // Factor of weight decay.
  A rate;  // Learning rate over the bias correction of m.
  A root;  // 1 / root of the bias correction of v.
};

template <typename A>
TRAINYARD_HOST_DEVICE AdamWCoefficients<A> CoefficientsOf(const AdamWOptions& options,
                                                          const StepState& state) {
  const double step = double(state.step), rate = state.learning_rate;
  return {.beta1 = A(options.beta1),
          .beta2 = A(options.beta2),
          .fresh1 = A(1 - options.beta1),
          .fresh2 = A(1 - options.beta2),
          .eps = A(options.eps),
          .clip = A(state.clip_factor),
          .keep = A(1 - rate * options.weight_decay),
          .rate = A(rate / (1 - std::pow(options.beta1, step))),
          .root = A(1 / std::sqrt(1 - std::pow(options.beta2, step)))};
}

template <typename A>
struct AdamWElement {
  A master, m, v;
};

// One element's update. Its operands are values: with references GCC does not vectorise the loop of
// the CPU's kernel well.
template <typename A>
TRAINYARD_HOST_DEVICE inline AdamWElement<A> AdamWUpdate(AdamWElement<A> old, A grad,
                                                         AdamWCoefficients<A> k) {
  const A g = grad * k.clip;
  const A m = k.beta1 * old.m + k.fresh1 * g;
  const A v = k.beta2 * old.v + k.fresh2 * g * g;
  return {k.keep * old.master - k.rate * m / (std::sqrt(v) * k.root + k.eps), m, v};
}

}  // namespace trainyard
