// The matrix product in its three roles: a linear layer forward, and its two gradients. The
// gradients are separate instances, so that a schedule can delay the weight's gradient.
#include "models/program/binder.h"
#include "models/program/ops/ops.h"
#include "models/program/product.h"

namespace trainyard::ops {
namespace {

using Role = ProductRole;

// Inputs: forward x [T,K], w [N,K], and bias [N] if any; input gradient dy [T,N], w; weight
// gradient dy, x.
class MatMulOp final : public Op {
 public:
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
    const Shape a = program.info(instance.inputs[0]).shape;
    const bool of_weight = role_ == Role::kWeightGradient;
    const Value weight = of_weight ? instance.outputs[0] : instance.inputs[1];
    cost.flops = ProductFlops(a.rows(), program.info(weight).shape.elements());
    return cost;
  }

  Call Bind(const Binder& binder, const Instance& instance) const override {
    const Value out = instance.outputs[0];
    Product product{.role = role_,
                    .a = binder.tensor(instance.inputs[0]),
                    .b = binder.tensor(instance.inputs[1]),
                    .out = binder.tensor(out)};
    if (instance.inputs.size() > 2) product.epilogue.bias = binder.tensor(instance.inputs[2]);
    if (role_ == Role::kWeightGradient) product.write = binder.write(out);
    return BindProduct(binder, product);
  }

  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    CHECK(role_ == Role::kForward) << name() << " has no backward";
    const Value x = instance.inputs[0], w = instance.inputs[1], dy = output_grads[0];
    std::vector<Value> grads(instance.inputs.size());
    if (instance.inputs.size() > 2) BiasGradient(recorder, dy, instance.inputs[2]);
    const ValueInfo info = recorder.info(x);
    if (info.differentiable) {
      const ProductUse use{kind_, Role::kInputGradient};
      const DType dtype = FormatOf(recorder, use, dy, w).result;
      grads[0] = recorder.Emit(std::make_shared<MatMulOp>(use), {dy, w},
                               {{.shape = info.shape, .dtype = dtype, .name = "dx"}})[0];
    }
    WeightGradient(recorder, kind_, {.dy = dy, .x = x, .weight = w});
    return grads;
  }

 private:
  ProductKind kind_;
  Role role_;
};

Value Multiply(Recorder& recorder, ProductKind kind, std::vector<Value> inputs) {
  const ValueInfo x = recorder.info(inputs[0]), w = recorder.info(inputs[1]);
  CHECK(x.shape.rank() == 2 && w.shape.rank() == 2 && x.shape[1] == w.shape[1])
      << "matmul: " << x << " with weight " << w;
  if (inputs.size() > 2) {
    const ValueInfo bias = recorder.info(inputs[2]);
    CHECK(bias.shape == Shape({w.shape[0]})) << "matmul: bias " << bias << " of weight " << w;
  }
  const ProductUse use{kind, Role::kForward};
  const DType dtype = FormatOf(recorder, use, inputs[0], inputs[1]).result;
  return recorder.Emit(std::make_shared<MatMulOp>(use), std::move(inputs),
                       {{.shape = {x.shape[0], w.shape[0]}, .dtype = dtype, .name = "product"}})[0];
}

}  // namespace

void WeightGradient(Recorder& recorder, ProductKind kind, const WeightGradientOf& of) {
  if (!recorder.IsTrainable(of.weight)) return;
  const ProductUse use{kind, Role::kWeightGradient};
  FormatOf(recorder, use, of.dy, of.x);
  const List list = recorder.list();
  recorder.set_list(List::kBackwardWeight);
  recorder.Emit(std::make_shared<MatMulOp>(use), {of.dy, of.x},
                {Recorder::Output::Into(recorder.Gradient(of.weight))});
  recorder.set_list(list);
}

Value Linear(Recorder& recorder, Value x, Value weight, Value bias) {
  std::vector<Value> inputs = {x, weight};
  if (bias.valid()) inputs.push_back(bias);
  return Multiply(recorder, ProductKind::kLayer, std::move(inputs));
}

Value Logits(Recorder& recorder, ProductKind kind, Value x, Value weight, Value bias) {
  std::vector<Value> inputs = {x, weight};
  if (bias.valid()) inputs.push_back(bias);
  return Multiply(recorder, kind, std::move(inputs));
}

}  // namespace trainyard::ops
