#include "models/program/optimizer/matrices.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "kernels/elementwise/copy_columns.h"
#include "kernels/elementwise/fill.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard {
namespace {

int64_t Least(const Shape& matrix) { return std::min(matrix[0], matrix[1]); }

// A matrix and this rank's boxes of it.
struct Matrix {
  std::string name;
  Shape shape;
  int block = 0;
  std::vector<ParameterBox> boxes = {};
  // The axes over which the boxes of all ranks make up the matrix. Empty: this rank has all of it.
  AxisSet axes = {};
  FlatBuffer from = FlatBuffer::kGradient;  // Has the direction of all boxes.
  std::vector<MatrixPiece> pieces = {};     // That this rank updates.
};

class DirectionOp final : public Op {
 public:
  explicit DirectionOp(const UpdateRange& range) : range_(range) {}
  absl::string_view name() const override { return "matrix_direction"; }
  bool has_effect() const override { return true; }
  std::string attributes() const override {
    return absl::StrCat("flat=", range_.flat.offset, "+", range_.flat.elements,
                        " shard=", range_.shard.offset);
  }
  Cost CostOf(const Program& program, const Instance&) const override {
    Cost cost = StateCost(program, range_.shard, range_.options.optimizer().matrices->states);
    cost.bytes += double(range_.flat.elements) * double(2 * SizeOf(program.precision.gradient));
    return cost;
  }
  Call Bind(const Binder& binder, const Instance&) const override {
    return range_.options.optimizer().matrices->direction(binder, range_);
  }

 private:
  UpdateRange range_;
};

// The outputs are memory for the direction and for its transformation, large enough for each matrix
// of the rank.
class MatrixUpdateOp final : public NamedOp<MatrixUpdateOp> {
 public:
  enum Input { kInputs };
  enum Output { kDirection, kTransformed, kSquare, kOtherSquare, kOutputs };
  MatrixUpdateOp(Matrix matrix, const OptimizerOptions& options)
      : matrix_(std::move(matrix)), options_(options) {}
  absl::string_view name() const override { return "matrix_update"; }
  AxisSet group() const override { return matrix_.axes; }
  bool has_effect() const override { return true; }
  std::string attributes() const override {
    std::ostringstream out;
    out << matrix_.name << " pieces=" << matrix_.pieces.size() << " axes=" << matrix_.axes;
    return out.str();
  }
  Cost CostOf(const Program& program, const Instance&) const override {
    Cost cost{.flops = rule().flops(matrix_.shape)};
    for (const MatrixPiece& piece : matrix_.pieces) {
      const Cost of_piece = StateCost(program, piece.range.shard, {{FlatBuffer::kMaster}});
      cost.bytes += of_piece.bytes;
      cost.host_bytes += of_piece.host_bytes;
    }
    return cost;
  }
  std::vector<Communication> CommunicationOf(const Program& program,
                                             const Instance& instance) const override {
    if (matrix_.axes.empty()) return {};
    const int64_t element = int64_t(SizeOf(program.info(instance.outputs[kDirection]).dtype));
    return {CallsOf(CollectiveOp::kAllReduceSum, 1, matrix_.shape.elements() * element,
                    program.mesh.size(matrix_.axes))};
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const int64_t k = Least(matrix_.shape);
    const auto memory = [&](Output output, const Shape& shape) {
      Tensor tensor = binder.tensor(instance.outputs[output]);
      tensor.shape = shape;
      return tensor;
    };
    const Tensor direction = memory(kDirection, matrix_.shape);
    const std::array<Tensor, 3> working = {memory(kTransformed, matrix_.shape),
                                           memory(kSquare, {k, k}), memory(kOtherSquare, {k, k})};
    std::vector<Call> calls = Collect(binder, direction);
    calls.push_back(rule().transform(binder, direction, working));
    for (const MatrixPiece& piece : matrix_.pieces) {
      calls.push_back(rule().update(binder, piece, direction));
    }
    return [calls = std::move(calls)](Exec& exec) {
      for (const Call& call : calls) call(exec);
    };
  }

 private:
  const MatrixRule& rule() const { return *options_.optimizer().matrices; }

  // Puts the direction together.
  std::vector<Call> Collect(const Binder& binder, const Tensor& direction) const {
    std::vector<Call> calls;
    if (!matrix_.axes.empty()) {
      calls.push_back(binder.Kernel(FillArgs{.y = direction, .value = 0}));
    }
    const size_t row_bytes = size_t(direction.shape[1]) * SizeOf(direction.dtype);
    for (const ParameterBox& box : matrix_.boxes) {
      Tensor from = binder.flat(matrix_.from, box.flat), to = direction;
      from.shape = box.shape;
      to.data = static_cast<std::byte*>(to.data) + size_t(box.offset[0]) * row_bytes;
      to.shape = direction.shape.With(0, box.shape[0]);
      calls.push_back(binder.Kernel(CopyColumnsArgs{
          .x = from, .x_begin = 0, .y = to, .y_begin = box.offset[1], .columns = box.shape[1]}));
    }
    if (!matrix_.axes.empty()) {
      calls.push_back([&collective = binder.collective(matrix_.axes), direction](Exec&) {
        collective.AllReduceSum(direction);
      });
    }
    return calls;
  }

  Matrix matrix_;
  OptimizerOptions options_;
};

// The matrices of a bucket, in the order of their places. Neighbouring boxes of one name are one
// matrix.
std::vector<Matrix> MatricesOf(const Program& program, const Bucket& bucket,
                               const Optimizer& optimizer) {
  std::vector<Matrix> matrices;
  for (const ParameterStorage& storage : program.storages) {
    if (storage.frozen || storage.flat.Intersect(bucket.flat).empty()) continue;
    if (!HasMatrices(program, storage, optimizer)) continue;
    for (ParameterBox& box : BoxesOf(storage, program.mesh)) {
      if (matrices.empty() || matrices.back().name != box.name) {
        matrices.push_back({.name = box.name, .shape = box.global_shape, .block = box.block});
      }
      matrices.back().boxes.push_back(std::move(box));
    }
  }
  for (Matrix& matrix : matrices) {
    int64_t held = 0;
    for (const ParameterBox& box : matrix.boxes) held += box.shape.elements();
    if (held != matrix.shape.elements()) matrix.axes = matrix.boxes.front().shard_axes;
    CHECK(held * program.mesh.size(matrix.axes) == matrix.shape.elements())
        << matrix.name << ": other ranks have other boxes, or this rank's are not neighbours";
  }
  return matrices;
}

// Whether a matrix lies in the shards of several ranks.
bool CrossesShards(const Bucket& bucket, const std::vector<Matrix>& matrices) {
  if (bucket.zero_axes.empty()) return false;
  const auto shard_of = [&](int64_t flat) {
    return (flat - bucket.flat.offset) / bucket.shard.elements;
  };
  return std::any_of(matrices.begin(), matrices.end(), [&](const Matrix& matrix) {
    return shard_of(matrix.boxes.front().flat.offset) !=
           shard_of(matrix.boxes.back().flat.end() - 1);
  });
}

void AddPieces(const Bucket& bucket, const OptimizerOptions& options, Matrix& matrix) {
  for (const ParameterBox& box : matrix.boxes) {
    for (const ParameterBox& part : Clip(box, bucket.own)) {
      const FlatRange shard{.offset = part.flat.offset - bucket.own.offset + bucket.shard.offset,
                            .elements = part.flat.elements};
      matrix.pieces.push_back({.range = {.flat = part.flat,
                                         .shard = shard,
                                         .writes_compute = bucket.copied,
                                         .options = options},
                               .row = part.offset[0],
                               .column = part.offset[1],
                               .rows = part.shape[0],
                               .columns = part.shape[1]});
    }
  }
}

// The ranges of all pieces, joined where they are adjacent.
std::vector<UpdateRange> RangesOf(const std::vector<Matrix>& matrices) {
  std::vector<UpdateRange> ranges;
  for (const Matrix& matrix : matrices) {
    for (const MatrixPiece& piece : matrix.pieces) Append(ranges, piece.range);
  }
  return ranges;
}

// The sizes of the memory that the largest matrices need.
std::vector<Recorder::Output> MemoryFor(const Program& program,
                                        const std::vector<Matrix>& matrices) {
  int64_t largest = 0, square = 0;
  for (const Matrix& matrix : matrices) {
    largest = std::max(largest, matrix.shape.elements());
    square = std::max(square, Least(matrix.shape) * Least(matrix.shape));
  }
  const DType dtype = program.precision.activation, sums = AccumulateOfDType(dtype);
  return {Recorder::Output::Memory("direction", {largest}, dtype),
          Recorder::Output::Memory("product", {largest}, sums),
          Recorder::Output::Memory("gram", {square}, dtype),
          Recorder::Output::Memory("gram_square", {square}, sums)};
}

}  // namespace

bool HasMatrices(const Program& program, const ParameterStorage& storage,
                 const Optimizer& optimizer) {
  const ParameterSpec& spec = storage.parameters.front();
  const int dims = spec.shape.rank() - (spec.stacked ? 1 : 0);
  const bool in_layer = storage.block > 0 && storage.block + 1 < program.num_blocks;
  return optimizer.matrices != nullptr && dims == 2 && storage.decay && in_layer;
}

void RecordMatrixUpdates(Recorder& recorder, const OptimizerOptions& options) {
  const Program& program = recorder.program();
  if (options.optimizer().matrices == nullptr) return;
  std::vector<std::vector<Matrix>> of_buckets;
  std::vector<Matrix> all;
  for (const Bucket& bucket : program.buckets) {
    std::vector<Matrix>& matrices =
        of_buckets.emplace_back(MatricesOf(program, bucket, options.optimizer()));
    for (Matrix& matrix : matrices) {
      AddPieces(bucket, options, matrix);
      if (!matrix.pieces.empty()) all.push_back(matrix);
    }
  }
  std::vector<Recorder::Output> memory = MemoryFor(program, all);
  for (size_t i = 0; i < of_buckets.size(); ++i) {
    const Bucket& bucket = program.buckets[i];
    for (const UpdateRange& range : RangesOf(of_buckets[i])) {
      recorder.EmitEffect(std::make_shared<DirectionOp>(range), List::kOptimizer);
    }
    const bool gathered = CrossesShards(bucket, of_buckets[i]);
    if (gathered) ops::GatherDirections(recorder, bucket);
    for (Matrix& matrix : of_buckets[i]) {
      if (matrix.pieces.empty()) continue;
      if (gathered) matrix.from = program.gradient_buffer(bucket.flat);
      recorder.set_list(List::kOptimizer);
      recorder.set_label(Name(List::kOptimizer));
      recorder.set_block(matrix.block);
      const std::vector<Value> values =
          recorder.Emit(std::make_shared<MatrixUpdateOp>(std::move(matrix), options), {}, memory);
      // The next matrix uses the same memory.
      for (size_t n = 0; n < memory.size(); ++n) memory[n] = Recorder::Output::Into(values[n]);
    }
  }
}

}  // namespace trainyard
