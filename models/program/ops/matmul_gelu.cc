// A product and its GELU as one op, forward and backward, so that a backend can do both in one pass
// over memory. Models do not record these ops. Fuse makes them: of a linear layer and GELU, and of
// the gradient of a linear layer's input and the backward of GELU.
#include <utility>

#include "models/program/binder.h"
#include "models/program/ops/ops.h"
#include "models/program/product.h"

namespace trainyard::ops {
namespace {

// The cost of an op with a product of these rows and this weight.
Cost CostOfProduct(const Program& program, const Instance& instance, Value rows, Value weight) {
  Cost cost = instance.op->Op::CostOf(program, instance);
  cost.flops = ProductFlops(program.info(rows).shape.rows(), program.info(weight).shape.elements());
  return cost;
}

class MatMulGeluBackwardOp final : public NamedOp<MatMulGeluBackwardOp> {
 public:
  enum Input { kDy, kWeight, kGeluInput, kInputs };
  enum Output { kDx, kOutputs };
  absl::string_view name() const override { return "matmul_gelu_backward"; }
  Cost CostOf(const Program& program, const Instance& instance) const override {
    return CostOfProduct(program, instance, instance.inputs[kDy], instance.inputs[kWeight]);
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return BindProduct(binder,
                       {.role = ProductRole::kInputGradient,
                        .a = binder.tensor(instance.inputs[kDy]),
                        .b = binder.tensor(instance.inputs[kWeight]),
                        .out = binder.tensor(instance.outputs[kDx]),
                        .epilogue = {.gelu_input = binder.tensor(instance.inputs[kGeluInput])}});
  }
};

class MatMulGeluOp final : public NamedOp<MatMulGeluOp> {
 public:
  enum Input { kX, kWeight, kBias, kInputs };
  enum Output { kGelu, kProduct, kOutputs };
  static constexpr size_t kOptionalInputs = 1;
  // The arguments are the ops that this op replaces.
  MatMulGeluOp(std::shared_ptr<const Op> product, std::shared_ptr<const Op> gelu)
      : product_(std::move(product)), gelu_(std::move(gelu)) {}

  absl::string_view name() const override { return "matmul_gelu"; }
  Cost CostOf(const Program& program, const Instance& instance) const override {
    return CostOfProduct(program, instance, instance.inputs[kX], instance.inputs[kWeight]);
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    Product product{.role = ProductRole::kForward,
                    .a = binder.tensor(instance.inputs[kX]),
                    .b = binder.tensor(instance.inputs[kWeight]),
                    .out = binder.tensor(instance.outputs[kProduct]),
                    .epilogue = {.gelu = binder.tensor(instance.outputs[kGelu])}};
    if (instance.inputs.size() > kBias) {
      product.epilogue.bias = binder.tensor(instance.inputs[kBias]);
    }
    return BindProduct(binder, product);
  }

  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    Value dproduct = output_grads[kProduct];
    if (output_grads[kGelu].valid()) {
      Instance gelu = instance;
      gelu.inputs = {instance.outputs[kProduct]};
      gelu.outputs = {instance.outputs[kGelu]};
      const Value dx = gelu_->Backward(recorder, gelu, output_grads.first(1))[0];
      dproduct = dproduct.valid() ? Add(recorder, dproduct, dx) : dx;
    }
    Instance product = instance;
    product.outputs = {instance.outputs[kProduct]};
    return product_->Backward(recorder, product, {&dproduct, 1});
  }

 private:
  std::shared_ptr<const Op> product_, gelu_;
};

}  // namespace

Instance MatMulGelu(const Instance& product, const Instance& gelu) {
  Instance joined = gelu;
  joined.op = std::make_shared<MatMulGeluOp>(product.op, gelu.op);
  joined.inputs = product.inputs;
  joined.outputs = {gelu.outputs.front(), product.outputs.front()};
  return joined;
}

Instance MatMulGeluBackward(const Instance& input_gradient, const Instance& gelu_backward) {
  Instance joined = gelu_backward;
  joined.op = std::make_shared<MatMulGeluBackwardOp>();
  // Of the product dy and the weight, and of GELU its input, which comes last.
  joined.inputs = {input_gradient.inputs.front(), input_gradient.inputs.back(),
                   gelu_backward.inputs.back()};
  return joined;
}

}  // namespace trainyard::ops
