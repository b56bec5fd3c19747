#include "kernels/elementwise/scale.h"

#include "absl/strings/str_cat.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

class ScaleOp final : public NamedOp<ScaleOp> {
 public:
  enum Input { kX, kInputs };
  enum Output { kY, kOutputs };
  explicit ScaleOp(double factor) : factor_(factor) {}
  absl::string_view name() const override { return "scale"; }
  std::string attributes() const override { return absl::StrCat("factor=", factor_); }
  bool MayAlias(int, int) const override { return true; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(ScaleArgs{.x = binder.tensor(instance.inputs[kX]),
                                   .y = binder.tensor(instance.outputs[kY]),
                                   .factor = factor_});
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance&,
                              std::span<const Value> output_grads) const override {
    return {Scale(recorder, output_grads[kY], factor_)};
  }

 private:
  const double factor_;
};

}  // namespace

Value Scale(Recorder& recorder, Value x, double factor) {
  if (factor == 1) return x;
  const ValueInfo info = recorder.info(x);
  return recorder.Emit(std::make_shared<ScaleOp>(factor), {x},
                       {{.shape = info.shape, .dtype = info.dtype, .name = "scaled"}})[0];
}

}  // namespace trainyard::ops
