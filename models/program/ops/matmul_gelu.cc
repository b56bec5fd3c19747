// A product and its GELU as one op, forward and backward, so that a backend can do both in one pass
// over memory. Models do not record these ops. Fuse makes them: of a linear layer and GELU, and of
// the gradient of a linear layer's input and the backward of GELU.
#include <utility>

#include "models/program/binder.h"
#include "models/program/ops/ops.h"
#include "models/program/product.h"

namespace trainyard::ops {
namespace {

// Inputs: rows, the weight that multiplies them, and others.
class WithProduct : public Op {
 public:
  Cost CostOf(const Program& program, const Instance& instance) const override {
    Cost cost = Op::CostOf(program, instance);
    cost.flops = ProductFlops(program.info(instance.inputs[0]).shape.rows(),
                              program.info(instance.inputs[1]).shape.elements());
    return cost;
  }
};

// Inputs: dy, w, the input of GELU. Output: dx.
class MatMulGeluBackwardOp final : public WithProduct {
 public:
  absl::string_view name() const override { return "matmul_gelu_backward"; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    return BindProduct(binder, {.role = ProductRole::kInputGradient,
                                .a = binder.tensor(instance.inputs[0]),
                                .b = binder.tensor(instance.inputs[1]),
                                .out = binder.tensor(instance.outputs[0]),
                                .epilogue = {.gelu_input = binder.tensor(instance.inputs[2])}});
  }
};

// Inputs: x, w, and bias if any. Outputs: GELU of the product; the product.
class MatMulGeluOp final : public WithProduct {
 public:
  // The arguments are the ops that this op replaces.
  MatMulGeluOp(std::shared_ptr<const Op> product, std::shared_ptr<const Op> gelu)
      : product_(std::move(product)), gelu_(std::move(gelu)) {}

  absl::string_view name() const override { return "matmul_gelu"; }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    Product product{.role = ProductRole::kForward,
                    .a = binder.tensor(instance.inputs[0]),
                    .b = binder.tensor(instance.inputs[1]),
                    .out = binder.tensor(instance.outputs[1]),
                    .epilogue = {.gelu = binder.tensor(instance.outputs[0])}};
    if (instance.inputs.size() > 2) product.epilogue.bias = binder.tensor(instance.inputs[2]);
    return BindProduct(binder, product);
  }

  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    Value dproduct = output_grads[1];
    if (output_grads[0].valid()) {
      Instance gelu = instance;
      gelu.inputs = {instance.outputs[1]};
      gelu.outputs = {instance.outputs[0]};
      const Value dx = gelu_->Backward(recorder, gelu, output_grads.first(1))[0];
      dproduct = dproduct.valid() ? Add(recorder, dproduct, dx) : dx;
    }
    Instance product = instance;
    product.outputs.erase(product.outputs.begin());
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
  joined.outputs = {gelu.outputs[0], product.outputs[0]};
  return joined;
}

Instance MatMulGeluBackward(const Instance& input_gradient, const Instance& gelu_backward) {
  Instance joined = gelu_backward;
  joined.op = std::make_shared<MatMulGeluBackwardOp>();
  joined.inputs = {input_gradient.inputs[0], input_gradient.inputs[1], gelu_backward.inputs[1]};
  return joined;
}

}  // namespace trainyard::ops
