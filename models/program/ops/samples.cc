// A value by sample is the same on all tensor and context ranks of the sample, while these ranks
// divide the tokens of the sample. SpreadSamples makes such a value readable by the ops on tokens.
// The backward pass sums the gradients of the value over the ranks.
#include "models/program/ops/samples.h"

#include <sstream>

#include "kernels/elementwise/copy_columns.h"
#include "models/program/binder.h"
#include "models/program/ops/column_parts.h"
#include "models/program/ops/ops.h"
#include "models/program/ops/ring.h"

namespace trainyard::ops {
namespace {

// The axes along which the rows of a sample are divided.
constexpr AxisSet kRowAxes = kTensorAxes | Axis::kContext;

std::string Text(AxisSet axes) {
  std::ostringstream out;
  out << "axes=" << axes;
  return out.str();
}

// n gradients [B, D] side by side [B, n D], summed over the ranks.
class SumSamplesOp final : public Op {
 public:
  enum Output { kSums };
  explicit SumSamplesOp(AxisSet axes) : axes_(axes) {}
  absl::string_view name() const override { return "sum_samples"; }
  AxisSet group() const override { return axes_; }
  std::string attributes() const override { return Text(axes_); }
  std::vector<Communication> CommunicationOf(const Program& program,
                                             const Instance& instance) const override {
    if (axes_.empty()) return {};
    return {CallsOf(CollectiveOp::kAllReduceSum, 1,
                    int64_t(program.info(instance.outputs[kSums]).bytes()),
                    program.mesh.size(axes_))};
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const Tensor y = binder.tensor(instance.outputs[kSums]);
    std::vector<Call> calls;
    int64_t begin = 0;
    for (Value input : instance.inputs) {
      const Tensor x = binder.tensor(input);
      const int64_t columns = x.shape.back();
      calls.push_back(binder.Kernel(
          CopyColumnsArgs{.x = x, .x_begin = 0, .y = y, .y_begin = begin, .columns = columns}));
      begin += columns;
    }
    if (!axes_.empty()) {
      calls.push_back([&group = binder.collective(axes_), y](Exec&) { group.AllReduceSum(y); });
    }
    return InOrder(std::move(calls));
  }

 private:
  const AxisSet axes_;
};

// The n parts [B, D] of the columns of x [B, n D].
class SpreadSamplesOp final : public Op {
 public:
  enum Input { kX };
  explicit SpreadSamplesOp(AxisSet axes) : axes_(axes) {}
  absl::string_view name() const override { return "spread_samples"; }
  std::string attributes() const override { return Text(axes_); }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return CopyToParts(binder, instance);
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    for (size_t i = 0; i < output_grads.size(); ++i) {
      CHECK(output_grads[i].valid()) << name() << ": nobody reads part " << i;
    }
    const ValueInfo info = recorder.info(instance.inputs[kX]);
    return recorder.Emit(
        std::make_shared<SumSamplesOp>(axes_),
        std::vector<Value>(output_grads.begin(), output_grads.end()),
        {{.shape = info.shape, .dtype = info.dtype, .name = "sums", .varying = info.varying}});
  }

 private:
  const AxisSet axes_;
};

// Of x [n T, D], y has this tensor rank's rows [T, D].
class OwnRowsOp final : public NamedOp<OwnRowsOp> {
 public:
  enum Input { kX, kInputs };
  enum Output { kY, kOutputs };
  explicit OwnRowsOp(int64_t first) : first_(first) {}
  absl::string_view name() const override { return "own_rows"; }
  std::string attributes() const override { return absl::StrCat("first_row=", first_); }
  // The op reads and writes only the rows of this rank.
  Cost CostOf(const Program& program, const Instance& instance) const override {
    return {.bytes = 2.0 * double(program.info(instance.outputs[kY]).bytes())};
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const Tensor y = binder.tensor(instance.outputs[kY]);
    const Tensor x = RowsOf(binder.tensor(instance.inputs[kX]), first_, y.shape[0]);
    return binder.Kernel(
        CopyColumnsArgs{.x = x, .x_begin = 0, .y = y, .y_begin = 0, .columns = y.shape.back()});
  }

 private:
  const int64_t first_;
};

}  // namespace

std::vector<Value> SpreadSamples(Recorder& recorder, Value x, int64_t parts) {
  const AxisSet axes = kRowAxes & recorder.mesh().active();
  const ValueInfo info = recorder.info(x);
  CHECK((info.varying & axes).empty())
      << "gradients of " << info << " vary along " << axes << ", over which it is spread";
  CHECK(info.shape.rank() == 2 && info.shape[1] % parts == 0)
      << "spread_samples: " << parts << " parts of " << info;
  const Recorder::Output part{.shape = info.shape.With(1, info.shape[1] / parts),
                              .dtype = info.dtype,
                              .name = "spread",
                              .varying = info.varying | axes};
  return recorder.Emit(std::make_shared<SpreadSamplesOp>(axes), {x},
                       std::vector<Recorder::Output>(size_t(parts), part));
}

Value OwnRows(Recorder& recorder, Value x) {
  const Mesh& mesh = recorder.mesh();
  const int64_t ranks = mesh.size(kTensorAxes);
  if (ranks == 1) return x;
  const ValueInfo info = recorder.info(x);
  CHECK(info.kind == ValueKind::kInput && info.shape.rank() == 2 && info.shape[0] % ranks == 0)
      << "own_rows: " << info << " for " << ranks << " ranks";
  const int64_t rows = info.shape[0] / ranks;
  return recorder.Emit(
      std::make_shared<OwnRowsOp>(mesh.coordinate(kTensorAxes) * rows), {x},
      {{.shape = info.shape.With(0, rows), .dtype = info.dtype, .name = "own_rows"}})[0];
}

}  // namespace trainyard::ops
