#include "kernels/state_space/state_scan.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "models/program/binder.h"
#include "models/program/ops/caches.h"
#include "models/program/ops/ops.h"
#include "models/program/ops/output_like.h"
#include "models/program/ops/state_ops.h"

namespace trainyard::ops {
namespace {

// One product with the state for each token: the convention of ops.h.
double StateFlops(const Program& program, Value rows, const StateDims& dims) {
  const double tokens = double(program.info(rows).shape[0]);
  return 2 * tokens * double(dims.inner()) * double(dims.state);
}

class StateScanBackwardOp final : public NamedOp<StateScanBackwardOp> {
 public:
  // The last two inputs may be missing. Without a start, kStart is the number of the positions.
  enum Input { kDy, kXbc, kDt, kDtBias, kALog, kD, kStart, kPositions, kInputs };
  enum Output { kDxbc, kDdt, kDdtBias, kDaLog, kDd, kDstart, kOutputs };
  static constexpr size_t kOptionalInputs = 2;
  static constexpr size_t kOptionalOutputs = 1;
  StateScanBackwardOp(const StateDims& dims, bool started) : dims_(dims), started_(started) {}
  absl::string_view name() const override { return "state_scan_backward"; }
  Cost CostOf(const Program& program, const Instance& instance) const override {
    Cost cost = Op::CostOf(program, instance);
    cost.flops = 2 * StateFlops(program, instance.inputs[kXbc], dims_);
    return cost;
  }
  std::optional<Kept> KeptOnGpu(const Program& program, const Instance& instance) const override {
    return KeptOf(StateCall::kScanBackward, program, instance.inputs[kXbc], dims_);
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const auto in = [&](size_t i) { return binder.tensor(instance.inputs[i]); };
    const auto out = [&](size_t i) { return binder.tensor(instance.outputs[i]); };
    StateScanBackwardArgs args{.dy = in(kDy),
                               .xbc = in(kXbc),
                               .dt = in(kDt),
                               .dt_bias = in(kDtBias),
                               .a_log = in(kALog),
                               .d = in(kD),
                               .dims = dims_,
                               .dxbc = out(kDxbc),
                               .ddt = out(kDdt),
                               .ddt_bias = out(kDdtBias),
                               .da_log = out(kDaLog),
                               .dd = out(kDd),
                               .write_ddt_bias = binder.write(instance.outputs[kDdtBias]),
                               .write_da_log = binder.write(instance.outputs[kDaLog]),
                               .write_dd = binder.write(instance.outputs[kDd])};
    if (started_) args.start = in(kStart), args.dstart = out(kDstart);
    if (instance.inputs.size() > (started_ ? kPositions : kStart)) {
      args.document_positions = binder.tensor(instance.inputs.back());
    }
    return binder.Kernel(args);
  }

 private:
  const StateDims dims_;
  const bool started_;
};

class StateScanOp final : public NamedOp<StateScanOp> {
 public:
  // As in StateScanBackwardOp.
  enum Input { kXbc, kDt, kDtBias, kALog, kD, kStart, kPositions, kInputs };
  enum Output { kY, kOutputs };
  static constexpr size_t kOptionalInputs = 2;
  StateScanOp(const StateDims& dims, bool started) : dims_(dims), started_(started) {}
  absl::string_view name() const override { return "state_scan"; }
  std::string attributes() const override { return ToString(dims_); }
  Cost CostOf(const Program& program, const Instance& instance) const override {
    Cost cost = Op::CostOf(program, instance);
    cost.flops = StateFlops(program, instance.inputs[kXbc], dims_);
    return cost;
  }
  std::optional<Kept> KeptOnGpu(const Program& program, const Instance& instance) const override {
    return KeptOf(StateCall::kScan, program, instance.inputs[kXbc], dims_);
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    StateScanForwardArgs args{.xbc = binder.tensor(instance.inputs[kXbc]),
                              .dt = binder.tensor(instance.inputs[kDt]),
                              .dt_bias = binder.tensor(instance.inputs[kDtBias]),
                              .a_log = binder.tensor(instance.inputs[kALog]),
                              .d = binder.tensor(instance.inputs[kD]),
                              .dims = dims_,
                              .y = binder.tensor(instance.outputs[kY])};
    if (started_) args.start = binder.tensor(instance.inputs[kStart]);
    if (instance.inputs.size() > (started_ ? kPositions : kStart)) {
      args.document_positions = binder.tensor(instance.inputs.back());
    }
    return binder.Kernel(args);
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const std::vector<Value>& in = instance.inputs;
    std::vector<Value> inputs = {output_grads[kY]};
    inputs.insert(inputs.end(), in.begin(), in.end());
    std::vector<Recorder::Output> outputs = {
        OutputLike(recorder, in[kXbc], "dxbc"), OutputLike(recorder, in[kDt], "ddt"),
        recorder.GradientOutput(in[kDtBias]), recorder.GradientOutput(in[kALog]),
        recorder.GradientOutput(in[kD])};
    if (started_) outputs.push_back(OutputLike(recorder, in[kStart], "dstart"));
    const std::vector<Value> grads = recorder.Emit(
        std::make_shared<StateScanBackwardOp>(dims_, started_), std::move(inputs), outputs);
    std::vector<Value> results(in.size());
    results[kXbc] = grads[StateScanBackwardOp::kDxbc];
    results[kDt] = grads[StateScanBackwardOp::kDdt];
    if (started_) results[kStart] = grads[StateScanBackwardOp::kDstart];
    return results;
  }

 private:
  const StateDims dims_;
  const bool started_;
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
  if (recorder.program().cache > 0) return KeptScan(recorder, inputs, dims);
  std::vector<Value> values = {inputs.xbc, inputs.dt, inputs.dt_bias, inputs.a_log, inputs.d};
  const bool started = recorder.part().ranks > 1;
  if (started) values.push_back(StateStarts(recorder, inputs, dims));
  if (inputs.positions.valid()) values.push_back(inputs.positions);
  return recorder.Emit(
      std::make_shared<StateScanOp>(dims, started), std::move(values),
      {{.shape = {xbc.shape[0], dims.inner()}, .dtype = xbc.dtype, .name = "scan"}})[0];
}

}  // namespace trainyard::ops
