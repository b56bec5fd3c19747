#include "kernels/experts/router.h"

#include "absl/strings/str_cat.h"
#include "kernels/experts/balance_bias.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {
namespace {

// dlogits has the dtype that the router's products take.
class RouterBackwardOp final : public NamedOp<RouterBackwardOp> {
 public:
  enum Input { kLogits, kExperts, kDweights, kInputs };
  enum Output { kDlogits, kOutputs };
  explicit RouterBackwardOp(const RouterOptions& options) : options_(options) {}
  absl::string_view name() const override { return "router_backward"; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return binder.Kernel(RouterBackwardArgs{.logits = binder.tensor(instance.inputs[kLogits]),
                                            .experts = binder.tensor(instance.inputs[kExperts]),
                                            .dweights = binder.tensor(instance.inputs[kDweights]),
                                            .options = options_,
                                            .dlogits = binder.tensor(instance.outputs[kDlogits])});
  }

 private:
  RouterOptions options_;
};

// The "gradient" is that of the bias on the choice (kernels/experts/balance_bias.h).
class BalanceBiasGradientOp final : public NamedOp<BalanceBiasGradientOp> {
 public:
  enum Input { kExperts, kInputs };
  enum Output { kGradient, kOutputs };
  absl::string_view name() const override { return "balance_bias_gradient"; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const Value gradient = instance.outputs[kGradient];
    return binder.Kernel(
        BalanceBiasGradientArgs{.experts = binder.tensor(instance.inputs[kExperts]),
                                .gradient = binder.tensor(gradient),
                                .write = binder.write(gradient)});
  }
};

class RouterOp final : public NamedOp<RouterOp> {
 public:
  enum Input { kLogits, kBias, kInputs };
  enum Output { kExperts, kWeights, kOutputs };
  static constexpr size_t kOptionalInputs = 1;
  explicit RouterOp(const RouterOptions& options) : options_(options) {}
  absl::string_view name() const override { return "router"; }
  std::string attributes() const override {
    return absl::StrCat("scoring=", int(options_.scoring), " top_k=", options_.top_k,
                        " groups=", options_.groups, " top_groups=", options_.top_groups,
                        " normalize=", options_.normalize, " scale=", options_.scale,
                        " choice=", int(options_.choice));
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    RouterForwardArgs args{.logits = binder.tensor(instance.inputs[kLogits]),
                           .options = options_,
                           .experts = binder.tensor(instance.outputs[kExperts]),
                           .weights = binder.tensor(instance.outputs[kWeights])};
    if (instance.inputs.size() > kBias) args.bias = binder.tensor(instance.inputs[kBias]);
    return binder.Kernel(args);
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const Value logits = instance.inputs[kLogits], experts = instance.outputs[kExperts];
    std::vector<Value> grads(instance.inputs.size());
    grads[kLogits] = recorder.Emit(
        std::make_shared<RouterBackwardOp>(options_), {logits, experts, output_grads[kWeights]},
        {{.shape = recorder.info(logits).shape,
          .dtype = recorder.precision()
                       .product({ProductKind::kRouter, ProductRole::kInputGradient})
                       .a.dtype,
          .name = "dlogits"}})[0];
    if (instance.inputs.size() > kBias && recorder.IsTrainable(instance.inputs[kBias])) {
      recorder.Emit(std::make_shared<BalanceBiasGradientOp>(), {experts},
                    {Recorder::Output::Into(recorder.Gradient(instance.inputs[kBias]))});
    }
    return grads;
  }

 private:
  RouterOptions options_;
};

class BalanceBiasOp final : public Op {
 public:
  BalanceBiasOp(const StateRange& range, double rate) : range_(range), rate_(rate) {}
  absl::string_view name() const override { return "balance_bias"; }
  bool has_effect() const override { return true; }
  std::string attributes() const override {
    return absl::StrCat("flat=", range_.flat.offset, "+", range_.flat.elements,
                        " shard=", range_.shard.offset, " rate=", rate_);
  }
  // The master is read and written, the gradient read.
  Cost CostOf(const Program& program, const Instance&) const override {
    const Precision& p = program.precision;
    return {.bytes =
                double(range_.flat.elements) * double(2 * SizeOf(p.master) + SizeOf(p.gradient))};
  }
  Call Bind(const Binder& binder, const Instance&) const override {
    return binder.Kernel(
        BalanceBiasArgs{.master = binder.flat(FlatBuffer::kMaster, range_.shard),
                        .gradient = binder.flat(FlatBuffer::kGradient, range_.flat),
                        .rate = rate_,
                        .state = binder.step_state()});
  }

 private:
  StateRange range_;
  double rate_;
};

}  // namespace

Routing Router(Recorder& recorder, Value logits, Value bias, const RouterOptions& options) {
  const ValueInfo info = recorder.info(logits);
  std::vector<Value> inputs = {logits};
  if (bias.valid()) {
    CHECK(recorder.info(bias).shape == Shape({info.shape.back()}))
        << "router: bias " << recorder.info(bias) << " for " << info;
    inputs.push_back(bias);
  }
  const Shape chosen = {info.shape[0], options.top_k};
  const std::vector<Value> outputs = recorder.Emit(
      std::make_shared<RouterOp>(options), std::move(inputs),
      {{.shape = chosen, .dtype = DType::kI32, .name = "chosen", .differentiable = false},
       {.shape = chosen, .dtype = info.dtype, .name = "weights"}});
  return {.experts = outputs[RouterOp::kExperts], .weights = outputs[RouterOp::kWeights]};
}

void BalanceBias(Recorder& recorder, const StateRange& range, double rate) {
  recorder.EmitEffect(std::make_shared<BalanceBiasOp>(range, rate), List::kOptimizer);
}

}  // namespace trainyard::ops
