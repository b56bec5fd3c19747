// The three parts of a Muon step of a matrix W [A, B]. With lr = state->learning_rate and
// g = grad * state->clip_factor:
//
//   MuonMomentum   m = momentum m + (1 - momentum) g        grad = momentum m + (1 - momentum) g
//
//   NewtonSchulz   x = x / max(|x|, 1e-7), where |x|^2 is the sum of the squares of x; then five
//                  times, with X = x if A <= B, and X = x^T otherwise, and G = X X^T:
//                  X = 3.4445 X + (-4.7750 G + 2.0315 G G) X
//
//   MuonUpdate     W = W - lr (weight_decay W + 0.2 sqrt(max(A, B)) x)      compute = W, rounded
//
// NewtonSchulz brings the singular values of x near 1. The factor of MuonUpdate gives an update the
// root mean square of AdamW's. The first and the last part may be called for pieces of a matrix,
// and the first also for pieces of several matrices at once.
//
// MuonMomentum adds the words of m, and MuonUpdate those of W, to state->read and state->written,
// as in adamw.h. Both change nothing if state->finite == 0. They are computed in the dtype of W.
// NewtonSchulz sums and adds in f32 (f64 for f64), and rounds G and x to the dtype of x each time.
// Bitwise deterministic for any thread count, as far as the matrix product is (matmul.h).
//
// Letters: n elements, K = min(A, B), R rows and C columns of a piece. Sources: Jordan et al. 2024,
// kellerjordan.github.io/posts/muon; the factor and the weight decay: Liu et al. 2025 (Moonlight),
// arXiv:2502.16982, section 2.2. As torch.optim.Muon with adjust_lr_fn="match_rms_adamw".

#pragma once

#include <algorithm>

#include "kernels/device/expect.h"
#include "kernels/device/step_state.h"
#include "kernels/sums/sum_words.h"

namespace trainyard {

struct MuonMomentumArgs {
  Tensor m;          // [n]  in/out, f64 | f32
  Tensor grad;       // [n]  in/out, dtype of m
  double momentum;   // in [0, 1)
  StepState* state;  // device memory
};

struct NewtonSchulzArgs {
  Tensor x;       // [A, B]  in/out, f64 | f32 | bf16
  Tensor y;       // [A, B]  working memory, f64 for f64, f32 otherwise
  Tensor gram;    // [K, K]  working memory, dtype of x
  Tensor square;  // [K, K]  working memory, dtype of y
};

struct MuonUpdateArgs {
  Tensor master;  // [R, C]  in/out, f64 | f32
  ConstTensor x;  // [A, B]  f64 for f64; f32 | bf16 otherwise
  int64_t row;    // The place of the piece in x.
  int64_t column;
  double weight_decay;  // >= 0
  StepState* state;     // device memory
  Tensor compute = {};  // [R, C]  out, bf16 or dtype of master; absent when its data is null
};

inline constexpr double kNewtonSchulz[] = {3.4445, -4.7750, 2.0315};
inline constexpr double kNewtonSchulzLeastNorm = 1e-7;
inline constexpr int kNewtonSchulzSteps = 5;
inline constexpr double kMuonScale = 0.2;

inline void Check(const MuonMomentumArgs& args) {
  ExpectDType("muon m", args.m, {DType::kF64, DType::kF32});
  ExpectData("muon m", args.m);
  ExpectElements("muon grad", args.grad, args.m.dtype, args.m.elements());
  CHECK(args.momentum >= 0 && args.momentum < 1) << "muon momentum: " << args.momentum;
  CHECK(args.state != nullptr) << "muon state: none";
}

inline void Check(const NewtonSchulzArgs& args) {
  const int64_t columns = ExpectColumns("newton_schulz x", args.x), rows = args.x.shape.rows();
  const int64_t k = std::min(rows, columns);
  const DType sums = AccumulateOfDType(args.x.dtype);
  ExpectFloat("newton_schulz x", args.x);
  ExpectMatrix("newton_schulz y", args.y, sums, rows, columns);
  ExpectMatrix("newton_schulz gram", args.gram, args.x.dtype, k, k);
  ExpectMatrix("newton_schulz square", args.square, sums, k, k);
}

inline void Check(const MuonUpdateArgs& args) {
  const int64_t columns = ExpectColumns("muon master", args.master);
  const int64_t rows = args.master.shape.rows();
  const int64_t all = ExpectColumns("muon x", args.x);
  ExpectDType("muon master", args.master, {DType::kF64, DType::kF32});
  ExpectFloat("muon x", args.x);
  CHECK(AccumulateOfDType(args.x.dtype) == args.master.dtype)
      << "muon x: " << args.x.dtype << " for masters of " << args.master.dtype;
  CHECK(args.row >= 0 && args.row + rows <= args.x.shape.rows() && args.column >= 0 &&
        args.column + columns <= all)
      << "muon piece: " << args.master.shape << " at " << args.row << ", " << args.column << " of "
      << args.x.shape;
  if (args.compute.data != nullptr) {
    ExpectDType("muon compute", args.compute, {DType::kBF16, args.master.dtype});
    ExpectMatrix("muon compute", args.compute, args.compute.dtype, rows, columns);
  }
  CHECK(args.weight_decay >= 0) << "muon weight_decay: " << args.weight_decay;
  CHECK(args.state != nullptr) << "muon state: none";
}

}  // namespace trainyard
