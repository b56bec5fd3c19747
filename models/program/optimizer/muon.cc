// Muon for the matrices of the layers, and AdamW for all other parameters, with one learning rate
// for both. kernels/optimizer/muon.h has the formula of the one, and kernels/optimizer/adamw.h that
// of the other.

#include "kernels/optimizer/muon.h"

#include <algorithm>

#include "models/program/binder.h"
#include "models/program/optimizer/matrices.h"

namespace trainyard {
namespace {

Call BindMomentum(const Binder& binder, const UpdateRange& range) {
  return binder.Kernel(MuonMomentumArgs{.m = binder.flat(FlatBuffer::kFirstMoment, range.shard),
                                        .grad = binder.flat(FlatBuffer::kGradient, range.flat),
                                        .momentum = range.options["momentum"],
                                        .state = binder.step_state()});
}

Call BindNewtonSchulz(const Binder& binder, const Tensor& direction,
                      std::span<const Tensor> memory) {
  return binder.Kernel(
      NewtonSchulzArgs{.x = direction, .y = memory[0], .gram = memory[1], .square = memory[2]});
}

double NewtonSchulzFlops(const Shape& matrix) {
  const double k = double(std::min(matrix[0], matrix[1])), n = double(matrix.elements()) / k;
  const double gram = 2 * k * k * n;
  return gram + kNewtonSchulzSteps * (2 * gram + 2 * k * k * k);
}

Call BindMuonUpdate(const Binder& binder, const MatrixPiece& piece, const Tensor& direction) {
  MuonUpdateArgs args{.master = binder.flat(FlatBuffer::kMaster, piece.range.shard),
                      .x = direction,
                      .row = piece.row,
                      .column = piece.column,
                      .weight_decay = piece.range.options["weight_decay"],
                      .state = binder.step_state()};
  args.master.shape = {piece.rows, piece.columns};
  if (piece.range.writes_compute) {
    args.compute = binder.flat(FlatBuffer::kCompute, piece.range.flat);
    args.compute.shape = args.master.shape;
  }
  return binder.Kernel(args);
}

}  // namespace

const Optimizer& MuonOptimizer() {
  static const MatrixRule* const matrices = new MatrixRule{.states = {FlatBuffer::kFirstMoment},
                                                           .direction = BindMomentum,
                                                           .transform = BindNewtonSchulz,
                                                           .flops = NewtonSchulzFlops,
                                                           .update = BindMuonUpdate};
  static const Optimizer* const muon = new Optimizer{.name = "muon",
                                                     .options = DeclaredOptions("muon"),
                                                     .states = AdamWOptimizer().states,
                                                     .bind = AdamWOptimizer().bind,
                                                     .matrices = matrices};
  return *muon;
}

}  // namespace trainyard
