// Cross-entropy of next-token logits, scaled so that micro-batches and ranks add up to the mean.
//
//   lse[t] = log sum_v exp(logits[t,v])
//   state->loss += loss_scale * sum over t with targets[t] >= 0 of (lse[t] - logits[t, targets[t]])
//   dlogits[t,v] = loss_scale * (exp(logits[t,v] - lse[t]) - (v == targets[t])),  0 when not
//   counted
//
// where loss_scale is state->loss_scale: 1 / counted tokens of the whole global batch.
// Letters: T tokens, V vocabulary. Target -1 is not counted; any other outside [0, V) is a
// programmer error that names it. Rows are reduced in f32 (f64 for f64), the loss in f64 in the
// order of t. Bitwise deterministic, on the CPU for any thread count.

#pragma once

#include "kernels/device/expect.h"
#include "kernels/device/step_state.h"

namespace trainyard {

struct CrossEntropyForwardArgs {
  ConstTensor logits;   // [T, V]  f64 | f32
  ConstTensor targets;  // [T]     i32
  Tensor lse;           // [T]     out, dtype of logits; kept for backward
  StepState* state;     // device memory; loss is added to
};

struct CrossEntropyBackwardArgs {
  ConstTensor logits;      // [T, V]  the forward input
  ConstTensor targets;     // [T]     i32
  ConstTensor lse;         // [T]     the forward output
  const StepState* state;  // device memory
  Tensor dlogits;          // [T, V]  out, dtype of logits, or bf16 when those are f32; overwritten;
                           //         may be logits when of the same dtype
};

inline void Check(const CrossEntropyForwardArgs& args) {
  ExpectColumns("cross_entropy logits", args.logits);
  ExpectDType("cross_entropy logits", args.logits, {DType::kF64, DType::kF32});
  ExpectData("cross_entropy logits", args.logits);
  ExpectElements("cross_entropy targets", args.targets, DType::kI32, args.logits.shape.rows());
  ExpectElements("cross_entropy lse", args.lse, args.logits.dtype, args.logits.shape.rows());
  CHECK(args.state != nullptr) << "cross_entropy state: none";
}

inline void Check(const CrossEntropyBackwardArgs& args) {
  const int64_t v = ExpectColumns("cross_entropy logits", args.logits);
  const int64_t t = args.logits.shape.rows();
  const DType dtype = args.logits.dtype;
  ExpectDType("cross_entropy logits", args.logits, {DType::kF64, DType::kF32});
  ExpectData("cross_entropy logits", args.logits);
  ExpectElements("cross_entropy targets", args.targets, DType::kI32, t);
  ExpectElements("cross_entropy lse", args.lse, dtype, t);
  CHECK(args.state != nullptr) << "cross_entropy state: none";
  ExpectDType("cross_entropy dlogits", args.dlogits,
              {dtype, dtype == DType::kF32 ? DType::kBF16 : dtype});
  ExpectMatrix("cross_entropy dlogits", args.dlogits, args.dlogits.dtype, t, v);
}

}  // namespace trainyard
