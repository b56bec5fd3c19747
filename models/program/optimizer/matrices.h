// Updates of whole matrices, for optimizers that do not treat each element alone.
//
// A matrix is a parameter of the public checkpoint with two dims, in a layer: each of query, key
// and value although they share a storage, and each expert of a stack. Embeddings and heads, which
// are the first and the last block, are no matrices, nor are gains and biases: Optimizer::bind
// updates them. A rank updates the pieces of a matrix that it owns under ZeRO and the layout. So it
// needs the whole direction of the matrix, of which other ranks have pieces, too:
//
//   1. Every rank makes the direction of what it owns from gradient and state, in place of the
//      gradient (MatrixRule::direction).
//   2. Where a matrix lies in several ZeRO shards, its bucket's directions are gathered, as the
//      compute copies are after the update.
//   3. Where a matrix is divided over other axes, the ranks add up their pieces of the direction.
//   4. Each rank that owns a piece transforms the whole direction, and updates its piece.
//
// Source of the steps: Moonlight, arXiv:2502.16982, section 2.3, algorithm 1.

#pragma once

#include <span>

#include "models/program/optimizer/optimizer.h"
#include "models/program/recorder.h"

namespace trainyard {

// A rectangle of a matrix, whose rows are contiguous in the flat buffers.
struct MatrixPiece {
  UpdateRange range;
  int64_t row = 0;  // Its first element in the matrix.
  int64_t column = 0;
  int64_t rows = 0;
  int64_t columns = 0;
};

struct MatrixRule {
  // The buffers, out of Optimizer::states, in which matrices have state.
  std::vector<FlatBuffer> states;
  // Binds the kernel that replaces the gradient by the direction.
  Call (*direction)(const Binder& binder, const UpdateRange& range);
  // Binds the transformation of a direction [A, B], in place. `memory` has three tensors: of the
  // sums' dtype [A, B], of the direction's dtype [K, K], and of the sums' dtype [K, K], with
  // K = min(A, B).
  Call (*transform)(const Binder& binder, const Tensor& direction, std::span<const Tensor> memory);
  // FLOPs of the transformation.
  double (*flops)(const Shape& matrix);
  // Binds the update of a piece.
  Call (*update)(const Binder& binder, const MatrixPiece& piece, const Tensor& direction);
};

// Whether the optimizer updates the parameters of this trainable storage as matrices.
bool HasMatrices(const Program& program, const ParameterStorage& storage,
                 const Optimizer& optimizer);

// Records the updates of all matrices that this rank owns pieces of. `options`: with weight decay.
void RecordMatrixUpdates(Recorder& recorder, const OptimizerOptions& options);

}  // namespace trainyard
