// All-gather and reduce-scatter of activations. Each is the backward of the other.
#include <sstream>

#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

class GatherOp final : public NamedOp<GatherOp> {
 public:
  enum Input { kX, kInputs };
  enum Output { kY, kOutputs };
  enum class Kind : uint8_t { kAllGather, kReduceScatter };
  GatherOp(Kind kind, AxisSet axes) : kind_(kind), axes_(axes) {}

  absl::string_view name() const override {
    return kind_ == Kind::kAllGather ? "all_gather" : "reduce_scatter";
  }
  AxisSet group() const override { return axes_; }
  std::string attributes() const override {
    std::ostringstream out;
    out << "axes=" << axes_;
    return out.str();
  }
  std::vector<Communication> CommunicationOf(const Program& program,
                                             const Instance& instance) const override {
    const bool gather = kind_ == Kind::kAllGather;
    const Value whole = gather ? instance.outputs[kY] : instance.inputs[kX];
    return {CallsOf(gather ? CollectiveOp::kAllGather : CollectiveOp::kReduceScatterSum, 1,
                    int64_t(program.info(whole).bytes()), program.mesh.size(axes_))};
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    Collective& collective = binder.collective(axes_);
    const Tensor x = binder.tensor(instance.inputs[kX]), y = binder.tensor(instance.outputs[kY]);
    if (kind_ == Kind::kAllGather)
      return [&collective, x, y](Exec&) { collective.AllGather(x, y); };
    return [&collective, x, y](Exec&) { collective.ReduceScatterSum(x, y); };
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance&,
                              std::span<const Value> output_grads) const override {
    return {kind_ == Kind::kAllGather ? ReduceScatter(recorder, output_grads[kY], axes_)
                                      : AllGather(recorder, output_grads[kY], axes_)};
  }

 private:
  Kind kind_;
  AxisSet axes_;
};

Value Emit(Recorder& recorder, GatherOp::Kind kind, Value x, AxisSet axes) {
  axes = axes & recorder.mesh().active();
  if (axes.empty()) return x;
  const ValueInfo info = recorder.info(x);
  CHECK((axes - info.varying).empty())
      << "gradients of " << info << " do not vary along " << axes << ", over which it is sent";
  const int64_t ranks = recorder.mesh().size(axes), rows = info.shape[0];
  const bool gather = kind == GatherOp::Kind::kAllGather;
  CHECK(gather || rows % ranks == 0) << info << ": rows for " << ranks << " ranks";
  return recorder.Emit(std::make_shared<GatherOp>(kind, axes), {x},
                       {{.shape = info.shape.With(0, gather ? rows * ranks : rows / ranks),
                         .dtype = info.dtype,
                         .name = gather ? "gathered" : "scattered"}})[0];
}

}  // namespace

Value AllGather(Recorder& recorder, Value x, AxisSet axes) {
  return Emit(recorder, GatherOp::Kind::kAllGather, x, axes);
}

Value ReduceScatter(Recorder& recorder, Value x, AxisSet axes) {
  return Emit(recorder, GatherOp::Kind::kReduceScatter, x, axes);
}

}  // namespace trainyard::ops
