// Rows of a matrix by their numbers. A validation's texts need the logits of their last tokens
// alone.
#include "kernels/embeddings/embedding.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

class TakeRowsOp final : public NamedOp<TakeRowsOp> {
 public:
  enum Input { kX, kRows, kInputs };
  enum Output { kY, kOutputs };
  absl::string_view name() const override { return "take_rows"; }
  // Counts the rows that are read, not the whole matrix.
  Cost CostOf(const Program& program, const Instance& instance) const override {
    return {.bytes = 2.0 * double(program.info(instance.outputs[kY]).bytes()) +
                     double(program.info(instance.inputs[kRows]).bytes())};
  }
  // The kernel reads x as a table of which another rank has the last id.
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const Tensor x = binder.tensor(instance.inputs[kX]);
    return binder.Kernel(EmbeddingForwardArgs{.table = x,
                                              .tokens = binder.tensor(instance.inputs[kRows]),
                                              .y = binder.tensor(instance.outputs[kY]),
                                              .slice = {.vocab = x.shape.rows() + 1}});
  }
};

}  // namespace

Value TakeRows(Recorder& recorder, Value x, Value rows) {
  const ValueInfo info = recorder.info(x), numbers = recorder.info(rows);
  CHECK(info.shape.rank() == 2 && numbers.shape.rank() == 1 && numbers.dtype == DType::kI32)
      << "take_rows: " << info << " by " << numbers;
  return recorder.Emit(std::make_shared<TakeRowsOp>(), {x, rows},
                       {{.shape = {numbers.shape[0], info.shape[1]},
                         .dtype = info.dtype,
                         .name = "rows",
                         .differentiable = false}})[0];
}

}  // namespace trainyard::ops
