// Cross-entropy of next-token logits, scaled so that micro-batches and ranks add up to the mean.
//
//   lse[t] = log sum_v exp(logits[t,v])
//   state->loss += loss_scale * sum over t with targets[t] >= 0 of (lse[t] - logits[t, targets[t]])
//   dlogits[t,v] = loss_scale * (exp(logits[t,v] - lse[t]) - (v == targets[t])), 0 if not counted
//
// where loss_scale is state->loss_scale: 1 / counted targets of the whole global batch.
//
// A loss of whole answers (preference.h) knows its gradient only once it has all log-probabilities:
//
//   log_probs[t] = logits[t, targets[t]] - lse[t], 0 if not counted, in place of the loss
//   dlogits[t,v] = -dlog_probs[t] * (exp(logits[t,v] - lse[t]) - (v == targets[t])), likewise
//
// Training without slices needs the loss and its gradient together. Then one call of forward writes
// dlogits, too: a GPU reads each logit once, and writes the gradient in its place.
//
// If ranks divide the vocabulary, forward has two phases. Each rank first computes the statistics
// of its columns:
//
//   statistics[t,:] = (m, sum_v exp(logits[t,v] - m), logits[t, targets[t]] or 0 if not held)
//   with m = max_v logits[t,v]
//
// Then it combines the gathered statistics of all ranks into lse, and adds the loss of its share of
// the rows.
//
// Columns of padding (VocabSlice) stand for no id: whatever their logits are, the sums leave them
// out, and dlogits is 0 there.
//
// Target -1 is not counted. Any other target outside the whole vocabulary is a programmer error
// that names it. Rows are reduced in f32 (f64 for f64), and the loss in f64: on the CPU in the
// order of t, on a GPU in an order that depends only on T. The formulas hold for the logits as they
// are given: bf16 logits are exact in f32. Bitwise deterministic, on the CPU for any thread count.
//
// Letters: T tokens, V columns of logits: the vocabulary, or this rank's slice of it; n ranks.

#pragma once

#include "kernels/device/step_state.h"
#include "kernels/device/vocab_slice.h"

namespace trainyard {

struct CrossEntropyForwardArgs {
  ConstTensor logits;     // [T, V]  f64 | f32 | bf16
  ConstTensor targets;    // [T]     i32
  Tensor lse;             // [T]     out, f32 (f64 for f64); kept for backward
  StepState* state;       // device memory; `loss` is added to
  VocabSlice slice = {};  // the whole vocabulary, with its padding
  Tensor log_probs = {};  // [T]     out, dtype of lse; if given, `state` is not used
  Tensor dlogits = {};    // [T, V]  out, as that of backward, if given; not with log_probs. lse of
                          // rows that are not counted then says nothing.
};

struct CrossEntropyStatisticsArgs {
  ConstTensor logits;   // [T, V]  f64 | f32 | bf16
  ConstTensor targets;  // [T]     i32
  VocabSlice slice;     // the slice that logits have
  Tensor statistics;    // [T, 3]  out, f32 (f64 for f64)
};

struct CrossEntropyCombineArgs {
  ConstTensor statistics;  // [n, T, 3]  f64 | f32; of all ranks, in the order of their slices
  ConstTensor targets;     // [T]        i32
  int64_t loss_begin;      // rows [loss_begin, loss_begin + loss_rows) are added to the loss
  int64_t loss_rows;
  Tensor lse;             // [T]  out, dtype of statistics; kept for backward
  StepState* state;       // device memory; `loss` is added to
  Tensor log_probs = {};  // [T]  out, dtype of statistics; if given, `state` is not used
};

struct CrossEntropyBackwardArgs {
  ConstTensor logits;      // [T, V]  the forward input
  ConstTensor targets;     // [T]     i32
  ConstTensor lse;         // [T]     the forward output
  const StepState* state;  // device memory
  Tensor dlogits;          // [T, V]  out, dtype of logits, or bf16 if logits are f32; overwritten;
                           // may be logits if of the same dtype
  VocabSlice slice = {};   // the slice that logits have
  ConstTensor dlog_probs = {};  // [T]  dtype of lse; if given, in place of the loss's gradient
};

// Checks logits [T, V], and returns the dtype of their rows' statistics.
inline DType ExpectLogits(const ConstTensor& logits) {
  ExpectColumns("cross_entropy logits", logits);
  ExpectFloat("cross_entropy logits", logits);
  ExpectData("cross_entropy logits", logits);
  return AccumulateOfDType(logits.dtype);
}

inline void ExpectLogitsGradient(const Tensor& dlogits, const ConstTensor& logits) {
  const bool f32 = logits.dtype == DType::kF32;
  ExpectDType("cross_entropy dlogits", dlogits, {logits.dtype, f32 ? DType::kBF16 : logits.dtype});
  ExpectMatrix("cross_entropy dlogits", dlogits, dlogits.dtype, logits.shape.rows(),
               logits.shape.back());
}

inline void Check(const CrossEntropyForwardArgs& args) {
  const DType dtype = ExpectLogits(args.logits);
  const int64_t t = args.logits.shape.rows();
  ExpectElements("cross_entropy targets", args.targets, DType::kI32, t);
  ExpectElements("cross_entropy lse", args.lse, dtype, t);
  if (args.log_probs.data != nullptr) {
    ExpectElements("cross_entropy log_probs", args.log_probs, dtype, t);
  }
  if (args.dlogits.data != nullptr) {
    ExpectLogitsGradient(args.dlogits, args.logits);
    CHECK(args.log_probs.data == nullptr)
        << "cross_entropy dlogits: that of log-probabilities is not known before they are";
  }
  ExpectSlice("cross_entropy slice", args.slice, args.logits.shape.back());
  CHECK(args.state != nullptr) << "cross_entropy state: none";
}

inline void Check(const CrossEntropyStatisticsArgs& args) {
  const DType dtype = ExpectLogits(args.logits);
  const int64_t t = args.logits.shape.rows();
  ExpectElements("cross_entropy targets", args.targets, DType::kI32, t);
  ExpectSlice("cross_entropy slice", args.slice, args.logits.shape.back());
  ExpectMatrix("cross_entropy statistics", args.statistics, dtype, t, 3);
}

inline void Check(const CrossEntropyCombineArgs& args) {
  const int64_t t = args.targets.elements();
  const ConstTensor& statistics = args.statistics;
  ExpectDType("cross_entropy statistics", statistics, {DType::kF64, DType::kF32});
  ExpectData("cross_entropy statistics", statistics);
  CHECK(statistics.shape.rank() == 3 && statistics.shape[0] > 0 &&
        statistics.shape == Shape({statistics.shape[0], t, 3}))
      << "cross_entropy statistics: wanted [ranks, " << t << ", 3], got " << statistics.shape;
  ExpectElements("cross_entropy targets", args.targets, DType::kI32, t);
  CHECK(args.loss_begin >= 0 && args.loss_rows >= 0 && args.loss_begin + args.loss_rows <= t)
      << "cross_entropy loss_begin: " << args.loss_rows << " rows from " << args.loss_begin
      << " of " << t;
  ExpectElements("cross_entropy lse", args.lse, statistics.dtype, t);
  if (args.log_probs.data != nullptr) {
    ExpectElements("cross_entropy log_probs", args.log_probs, statistics.dtype, t);
  }
  CHECK(args.state != nullptr) << "cross_entropy state: none";
}

inline void Check(const CrossEntropyBackwardArgs& args) {
  const DType dtype = ExpectLogits(args.logits);
  const int64_t t = args.logits.shape.rows();
  ExpectElements("cross_entropy targets", args.targets, DType::kI32, t);
  ExpectElements("cross_entropy lse", args.lse, dtype, t);
  if (args.dlog_probs.data != nullptr) {
    ExpectElements("cross_entropy dlog_probs", args.dlog_probs, dtype, t);
  }
  CHECK(args.state != nullptr) << "cross_entropy state: none";
  ExpectLogitsGradient(args.dlogits, args.logits);
  ExpectSlice("cross_entropy slice", args.slice, args.logits.shape.back());
}

}  // namespace trainyard
