#include "kernels/embeddings/grid_positions.h"

#include "absl/strings/str_cat.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

class GridPositionsOp final : public NamedOp<GridPositionsOp> {
 public:
  enum Input { kInputs };
  enum Output { kPositions, kOutputs };
  GridPositionsOp(int64_t columns, const SequencePart& part, int64_t first_row)
      : columns_(columns), part_(part), first_row_(first_row) {}
  absl::string_view name() const override { return "grid_positions"; }
  std::string attributes() const override {
    return absl::StrCat("columns=", columns_, " rows=", part_.rows, " context=", part_.rank, "/",
                        part_.ranks, " first_row=", first_row_);
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(GridPositionsArgs{.y = binder.tensor(instance.outputs[kPositions]),
                                           .columns = columns_,
                                           .part = part_,
                                           .first_row = first_row_});
  }

 private:
  const int64_t columns_;
  const SequencePart part_;
  const int64_t first_row_;
};

}  // namespace

Value AddGridPositions(Recorder& recorder, Value x, int64_t columns) {
  const Mesh& mesh = recorder.mesh();
  const ValueInfo info = recorder.info(x);
  const auto op = std::make_shared<GridPositionsOp>(columns, recorder.part(),
                                                    mesh.coordinate(kTensorAxes) * info.shape[0]);
  const Value positions = recorder.EmitConstants(
      op, {{.shape = info.shape, .dtype = info.dtype, .name = "positions"}})[0];
  return Add(recorder, x, positions);
}

}  // namespace trainyard::ops
