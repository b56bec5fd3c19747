// The matrix product in its three roles: a linear layer forward, and its two gradients. The
// gradients are separate instances, so that a schedule can delay the weight's gradient.
#include "models/program/binder.h"
#include "models/program/ops/ops.h"
#include "models/program/ops/scaled_product.h"
#include "models/program/product.h"

namespace trainyard::ops {
namespace {

using Role = ProductRole;

// The operands are by role, as in Product. Forward may have a bias.
class MatMulOp final : public NamedOp<MatMulOp> {
 public:
  enum Input { kA, kB, kBias, kInputs };
  enum Output { kProduct, kOutputs };
  static constexpr size_t kOptionalInputs = 1;
  explicit MatMulOp(const ProductUse& use) : kind_(use.kind), role_(use.role) {}

  absl::string_view name() const override {
    switch (role_) {
      case Role::kForward:
        return "matmul";
      case Role::kInputGradient:
        return "matmul_input_gradient";
      case Role::kWeightGradient:
        return "matmul_weight_gradient";
    }
    return "?";
  }

  Cost CostOf(const Program& program, const Instance& instance) const override {
    Cost cost = Op::CostOf(program, instance);
    const Shape a = program.info(instance.inputs[kA]).shape;
    const bool of_weight = role_ == Role::kWeightGradient;
    const Value weight = of_weight ? instance.outputs[kProduct] : instance.inputs[kB];
    cost.flops = ProductFlops(a.rows(), program.info(weight).shape.elements());
    return cost;
  }

  Call Bind(const Binder& binder, const Instance& instance) const override {
    const Value out = instance.outputs[kProduct];
    Product product{.role = role_,
                    .a = binder.tensor(instance.inputs[kA]),
                    .b = binder.tensor(instance.inputs[kB]),
                    .out = binder.tensor(out)};
    if (instance.inputs.size() > kBias)
      product.epilogue.bias = binder.tensor(instance.inputs[kBias]);
    if (role_ == Role::kWeightGradient) product.write = binder.write(out);
    return BindProduct(binder, product);
  }

  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    CHECK(role_ == Role::kForward) << name() << " has no backward";
    std::vector<Value> grads(instance.inputs.size());
    grads[kA] = LinearGradients(
        recorder, kind_,
        {.dy = output_grads[kProduct],
         .x = instance.inputs[kA],
         .weight = instance.inputs[kB],
         .bias = instance.inputs.size() > kBias ? instance.inputs[kBias] : Value{}});
    return grads;
  }

 private:
  ProductKind kind_;
  Role role_;
};

// Records the product of the operands, in the precision's format for it.
Value EmitProduct(Recorder& recorder, const ProductUse& use, const ProductOf& of,
                  Recorder::Output output) {
  const ProductFormat format = recorder.precision().product(use);
  if (!output.existing.valid()) output.dtype = format.result;
  if (format.scaled()) return ScaledProduct(recorder, use, of, output);
  FormatOf(recorder, use, of.a, of.b);
  std::vector<Value> inputs = {of.a, of.b};
  if (of.bias.valid()) inputs.push_back(of.bias);
  return recorder.Emit(std::make_shared<MatMulOp>(use), std::move(inputs), {std::move(output)})[0];
}

}  // namespace

void WeightGradient(Recorder& recorder, ProductKind kind, const WeightGradientOf& of) {
  if (!recorder.IsTrainable(of.weight)) return;
  const List list = recorder.list();
  recorder.set_list(List::kBackwardWeight);
  EmitProduct(recorder, {kind, Role::kWeightGradient}, {.a = of.dy, .b = of.x, .weight = of.weight},
              Recorder::Output::Into(recorder.Gradient(of.weight)));
  recorder.set_list(list);
}

Value LinearGradients(Recorder& recorder, ProductKind kind, const LinearGradientsOf& of) {
  if (of.bias.valid()) BiasGradient(recorder, of.dy, of.bias);
  const ValueInfo x = recorder.info(of.x);
  Value dx;
  if (x.differentiable) {
    dx = EmitProduct(recorder, {kind, Role::kInputGradient},
                     {.a = of.dy, .b = of.weight, .weight = of.weight},
                     {.shape = x.shape, .name = "dx"});
  }
  WeightGradient(recorder, kind, {.dy = of.dy, .x = of.x, .weight = of.weight});
  return dx;
}

Value Linear(Recorder& recorder, ProductKind kind, Value x, Value weight, Value bias) {
  const ValueInfo x_info = recorder.info(x), w = recorder.info(weight);
  CHECK(x_info.shape.rank() == 2 && w.shape.rank() == 2 && x_info.shape[1] == w.shape[1])
      << "matmul: " << x_info << " with weight " << w;
  if (bias.valid()) {
    const ValueInfo b = recorder.info(bias);
    CHECK(b.shape == Shape({w.shape[0]})) << "matmul: bias " << b << " of weight " << w;
  }
  return EmitProduct(recorder, {kind, Role::kForward},
                     {.a = x, .b = weight, .weight = weight, .bias = bias},
                     {.shape = {x_info.shape[0], w.shape[0]}, .name = "product"});
}

Value Linear(Recorder& recorder, Value x, Value weight, Value bias) {
  return Linear(recorder, recorder.layer_kind(), x, weight, bias);
}

}  // namespace trainyard::ops
