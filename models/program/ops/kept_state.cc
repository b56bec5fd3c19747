// Recurrent layers of the newest tokens of texts. No gradients, as in cached_attention.cc.
#include "kernels/state_space/kept_state.h"

#include "models/program/binder.h"
#include "models/program/ops/caches.h"
#include "models/program/ops/state_ops.h"

namespace trainyard::ops {
namespace {

class KeptConvOp final : public NamedOp<KeptConvOp> {
 public:
  enum Input { kX, kWeight, kBias, kRows, kInputs };
  enum Output { kY, kKept, kOutputs };
  static constexpr char kName[] = "kept_conv";
  explicit KeptConvOp(int64_t text_rows) : text_rows_(text_rows) {}
  absl::string_view name() const override { return kName; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(KeptConvArgs{.x = binder.tensor(instance.inputs[kX]),
                                      .weight = binder.tensor(instance.inputs[kWeight]),
                                      .bias = binder.tensor(instance.inputs[kBias]),
                                      .rows = binder.tensor(instance.inputs[kRows]),
                                      .text_rows = text_rows_,
                                      .kept = binder.tensor(instance.outputs[kKept]),
                                      .y = binder.tensor(instance.outputs[kY])});
  }

 private:
  const int64_t text_rows_;
};

class KeptScanOp final : public NamedOp<KeptScanOp> {
 public:
  enum Input { kXbc, kDt, kDtBias, kALog, kD, kRows, kInputs };
  enum Output { kY, kKept, kOutputs };
  static constexpr char kName[] = "kept_scan";
  KeptScanOp(const StateDims& dims, int64_t text_rows) : dims_(dims), text_rows_(text_rows) {}
  absl::string_view name() const override { return kName; }
  std::string attributes() const override { return ToString(dims_); }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(KeptScanArgs{.xbc = binder.tensor(instance.inputs[kXbc]),
                                      .dt = binder.tensor(instance.inputs[kDt]),
                                      .dt_bias = binder.tensor(instance.inputs[kDtBias]),
                                      .a_log = binder.tensor(instance.inputs[kALog]),
                                      .d = binder.tensor(instance.inputs[kD]),
                                      .dims = dims_,
                                      .rows = binder.tensor(instance.inputs[kRows]),
                                      .text_rows = text_rows_,
                                      .kept = binder.tensor(instance.outputs[kKept]),
                                      .y = binder.tensor(instance.outputs[kY])});
  }

 private:
  const StateDims dims_;
  const int64_t text_rows_;
};

Value RowsOfTokens(Recorder& recorder) {
  const Program& program = recorder.program();
  return recorder.Read(
      InputSpec{.name = kCacheRows, .limit = program.cached_texts * RowsOfText(program.cache) + 1});
}

}  // namespace

Value KeptConv(Recorder& recorder, Value x, Value weight, Value bias) {
  const ValueInfo info = recorder.info(x);
  const Program& program = recorder.program();
  ValueInfo last = info;
  last.shape = {program.cached_texts, (recorder.info(weight).shape.back() - 1) * info.shape[1]};
  const Value kept = CacheOf(recorder, KeptConvOp::kName, last);
  return recorder.Emit(std::make_shared<KeptConvOp>(RowsOfText(program.cache)),
                       {x, weight, bias, RowsOfTokens(recorder)},
                       {{.shape = info.shape, .dtype = info.dtype, .name = "conv"},
                        Recorder::Output::Into(kept)})[KeptConvOp::kY];
}

Value KeptScan(Recorder& recorder, const StateScanInputs& inputs, const StateDims& dims) {
  const ValueInfo xbc = recorder.info(inputs.xbc);
  const Program& program = recorder.program();
  ValueInfo state = xbc;
  state.shape = {program.cached_texts, dims.state_columns()};
  state.dtype = AccumulateOfDType(xbc.dtype);
  const Value kept = CacheOf(recorder, KeptScanOp::kName, state);
  return recorder.Emit(
      std::make_shared<KeptScanOp>(dims, RowsOfText(program.cache)),
      {inputs.xbc, inputs.dt, inputs.dt_bias, inputs.a_log, inputs.d, RowsOfTokens(recorder)},
      {{.shape = {xbc.shape[0], dims.inner()}, .dtype = xbc.dtype, .name = "scan"},
       Recorder::Output::Into(kept)})[KeptScanOp::kY];
}

}  // namespace trainyard::ops
