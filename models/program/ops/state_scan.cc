#include "kernels/state_scan.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"
#include "models/program/ops/output_like.h"
#include "models/program/ops/state_ops.h"

namespace trainyard::ops {
namespace {

// One product with the state for each token: the convention of ops.h.
double StateFlops(const Program& program, const Instance& instance, const StateDims& dims) {
  const double tokens = double(program.info(instance.inputs[0]).shape[0]);
  return 2 * tokens * double(dims.inner()) * double(dims.state);
}

// Inputs: dy, xbc, dt, dt_bias, a_log, d, start if any. Outputs: dxbc, ddt, the gradients of
// dt_bias, a_log and d, dstart.
class StateScanBackwardOp final : public Op {
 public:
  explicit StateScanBackwardOp(const StateDims& dims) : dims_(dims) {}
  absl::string_view name() const override { return "state_scan_backward"; }
  Cost CostOf(const Program& program, const Instance& instance) const override {
    Cost cost = Op::CostOf(program, instance);
    cost.flops = 2 * StateFlops(program, instance, dims_);
    return cost;
  }
  std::optional<Kept> KeptOnGpu(const Program& program, const Instance& instance) const override {
    return KeptOf(StateCall::kScanBackward, program, instance.inputs[1], dims_);
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const auto in = [&](size_t i) { return binder.tensor(instance.inputs[i]); };
    const auto out = [&](size_t i) { return binder.tensor(instance.outputs[i]); };
    StateScanBackwardArgs args{.dy = in(0),
                               .xbc = in(1),
                               .dt = in(2),
                               .dt_bias = in(3),
                               .a_log = in(4),
                               .d = in(5),
                               .dims = dims_,
                               .dxbc = out(0),
                               .ddt = out(1),
                               .ddt_bias = out(2),
                               .da_log = out(3),
                               .dd = out(4),
                               .write_ddt_bias = binder.write(instance.outputs[2]),
                               .write_da_log = binder.write(instance.outputs[3]),
                               .write_dd = binder.write(instance.outputs[4])};
    if (instance.inputs.size() > 6) args.start = in(6), args.dstart = out(5);
    return binder.Kernel(args);
  }

 private:
  const StateDims dims_;
};

// Inputs: xbc, dt, dt_bias, a_log, d, start if any. Output: y.
class StateScanOp final : public Op {
 public:
  explicit StateScanOp(const StateDims& dims) : dims_(dims) {}
  absl::string_view name() const override { return "state_scan"; }
  std::string attributes() const override { return ToString(dims_); }
  Cost CostOf(const Program& program, const Instance& instance) const override {
    Cost cost = Op::CostOf(program, instance);
    cost.flops = StateFlops(program, instance, dims_);
    return cost;
  }
  std::optional<Kept> KeptOnGpu(const Program& program, const Instance& instance) const override {
    return KeptOf(StateCall::kScan, program, instance.inputs[0], dims_);
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    StateScanForwardArgs args{.xbc = binder.tensor(instance.inputs[0]),
                              .dt = binder.tensor(instance.inputs[1]),
                              .dt_bias = binder.tensor(instance.inputs[2]),
                              .a_log = binder.tensor(instance.inputs[3]),
                              .d = binder.tensor(instance.inputs[4]),
                              .dims = dims_,
                              .y = binder.tensor(instance.outputs[0])};
    if (instance.inputs.size() > 5) args.start = binder.tensor(instance.inputs[5]);
    return binder.Kernel(args);
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const std::vector<Value>& in = instance.inputs;
    std::vector<Value> inputs = {output_grads[0]};
    inputs.insert(inputs.end(), in.begin(), in.end());
    std::vector<Recorder::Output> outputs = {
        OutputLike(recorder, in[0], "dxbc"), OutputLike(recorder, in[1], "ddt"),
        recorder.GradientOutput(in[2]), recorder.GradientOutput(in[3]),
        recorder.GradientOutput(in[4])};
    if (in.size() > 5) outputs.push_back(OutputLike(recorder, in[5], "dstart"));
    const std::vector<Value> grads =
        recorder.Emit(std::make_shared<StateScanBackwardOp>(dims_), std::move(inputs), outputs);
    std::vector<Value> results = {grads[0], grads[1], {}, {}, {}};
    if (in.size() > 5) results.push_back(grads[5]);
    return results;
  }

 private:
  const StateDims dims_;
};

}  // namespace

std::string ToString(const StateDims& dims) {
  std::string text =
      absl::StrCat("heads=", dims.heads, " groups=", dims.groups, " head_dim=", dims.head_dim,
                   " state=", dims.state, " sequence=", dims.sequence);
  if (dims.min_step > 0) absl::StrAppend(&text, " min_step=", dims.min_step);
  if (std::isfinite(dims.max_step)) absl::StrAppend(&text, " max_step=", dims.max_step);
  return text;
}

std::optional<Op::Kept> KeptOf(StateCall call, const Program& program, Value xbc,
                               const StateDims& dims) {
  const ValueInfo info = program.info(xbc);
  return Op::Kept{"state space", size_t(StateScratchBytes(call, dims, info.shape[0], info.dtype))};
}

Value StateScan(Recorder& recorder, const StateScanInputs& inputs, const StateDims& dims) {
  const ValueInfo xbc = recorder.info(inputs.xbc), dt = recorder.info(inputs.dt);
  CHECK(xbc.shape.back() == dims.columns() && dt.shape.back() == dims.heads)
      << "state_scan: " << xbc << " and " << dt << " for " << ToString(dims);
  std::vector<Value> values = {inputs.xbc, inputs.dt, inputs.dt_bias, inputs.a_log, inputs.d};
  if (recorder.part().ranks > 1) values.push_back(StateStarts(recorder, inputs, dims));
  return recorder.Emit(
      std::make_shared<StateScanOp>(dims), std::move(values),
      {{.shape = {xbc.shape[0], dims.inner()}, .dtype = xbc.dtype, .name = "scan"}})[0];
}

}  // namespace trainyard::ops
