// The matrix product in its three roles: a linear layer forward, and its two gradients. The
// gradients are separate instances, so that a schedule can delay the weight's gradient.
#include "models/program/binder.h"
#include "models/program/ops/in_place.h"
#include "models/program/ops/linear_weight.h"
#include "models/program/ops/ops.h"
#include "models/program/ops/scaled_product.h"
#include "models/program/product.h"

namespace trainyard::ops {
namespace {

using Role = ProductRole;

// The operands are by role, as in Product. Then come, if there are any, a bias (forward) or what
// the product is added to (`adds`), and the other parts of a weight in NF4.
class MatMulOp final : public Op {
 public:
  enum Input { kA, kB, kBias, kAddend = kBias };
  enum Output { kProduct, kOutputs };
  MatMulOp(const ProductUse& use, const WeightInputs& weight, bool adds = false)
      : use_(use), weight_(weight), adds_(adds) {}

  absl::string_view name() const override {
    switch (use_.role) {
      case Role::kForward:
        return "matmul";
      case Role::kInputGradient:
        return adds_ ? "matmul_input_gradient_add" : "matmul_input_gradient";
      case Role::kWeightGradient:
        return "matmul_weight_gradient";
    }
    return "?";
  }
  std::optional<OperandCounts> operand_counts() const override {
    return OperandCounts{.inputs = kBias + 1 + weight_.count(),
                         .outputs = kOutputs,
                         .optional_inputs = adds_ ? size_t{0} : size_t{1}};
  }
  bool MayAlias(int /*output*/, int input) const override { return adds_ && input == kAddend; }

  Cost CostOf(const Program& program, const Instance& instance) const override {
    Cost cost = Op::CostOf(program, instance);
    const Shape a = program.info(instance.inputs[kA]).shape;
    const Shape weight = use_.role == Role::kWeightGradient
                             ? program.info(instance.outputs[kProduct]).shape
                             : ShapeOf(program, weight_.Of(instance, kB));
    cost.flops = ProductFlops(a.rows(), weight.elements());
    return cost;
  }
  std::optional<Kept> KeptOnGpu(const Program& program, const Instance& instance) const override {
    const Shape out = program.info(instance.outputs[kProduct]).shape;
    const Shape a = program.info(instance.inputs[kA]).shape;
    return weight_.KeptOnGpu(program, {.rows = out.rows(), .summed = a.back()}, out.back());
  }

  Call Bind(const Binder& binder, const Instance& instance) const override {
    const Value out = instance.outputs[kProduct];
    Product product{.role = use_.role,
                    .a = binder.tensor(instance.inputs[kA]),
                    .b = binder.tensor(instance.inputs[kB]),
                    .out = binder.tensor(out),
                    .nf4 = weight_.Bind(binder, instance)};
    if (adds_) {
      product.write = Write::kAdd;
      return After(CopyUnlessInPlace(binder, instance.inputs[kAddend], out),
                   BindProduct(binder, product));
    }
    if (has_bias(instance)) product.epilogue.bias = binder.tensor(instance.inputs[kBias]);
    if (use_.role == Role::kWeightGradient) product.write = binder.write(out);
    return BindProduct(binder, product);
  }

  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    CHECK(use_.role == Role::kForward) << name() << " has no backward";
    std::vector<Value> grads(instance.inputs.size());
    grads[kA] = LinearGradients(recorder, use_.kind,
                                {.dy = output_grads[kProduct],
                                 .x = instance.inputs[kA],
                                 .weight = weight_.Of(instance, kB),
                                 .bias = has_bias(instance) ? instance.inputs[kBias] : Value{}});
    return grads;
  }

  // Returns the op that adds the product to another value.
  std::shared_ptr<const Op> Adding() const {
    return std::make_shared<MatMulOp>(use_, weight_, true);
  }

 private:
  bool has_bias(const Instance& instance) const {
    return !adds_ && weight_.others(instance) > kBias;
  }

  const ProductUse use_;
  const WeightInputs weight_;
  const bool adds_;
};

// Records the product of the operands, in the precision's format for it.
Value EmitProduct(Recorder& recorder, const ProductUse& use, const ProductOf& of,
                  Recorder::Output output, const LinearWeight& of_weight = {}) {
  const ProductFormat format = recorder.precision().product(use);
  if (!output.existing.valid()) output.dtype = format.result;
  if (format.scaled()) return ScaledProduct(recorder, use, of, output);
  FormatOf(recorder, use, of.a, of.b);
  std::vector<Value> inputs = {of.a, of.b};
  if (of.bias.valid()) inputs.push_back(of.bias);
  const bool reads_weight = use.role != Role::kWeightGradient;
  const WeightInputs weight(reads_weight ? of_weight : LinearWeight());
  weight.Append(of_weight, inputs);
  return recorder.Emit(std::make_shared<MatMulOp>(use, weight), std::move(inputs),
                       {std::move(output)})[0];
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
                     {.a = of.dy, .b = of.weight.value, .weight = of.weight.value},
                     {.shape = x.shape, .name = "dx"}, of.weight);
  }
  WeightGradient(recorder, kind, {.dy = of.dy, .x = of.x, .weight = of.weight.value});
  return dx;
}

Value Linear(Recorder& recorder, ProductKind kind, Value x, const LinearWeight& weight,
             Value bias) {
  const ValueInfo x_info = recorder.info(x);
  const Shape w = ShapeOf(recorder.program(), weight);
  CHECK(x_info.shape.rank() == 2 && w.rank() == 2 && x_info.shape[1] == w[1])
      << "matmul: " << x_info << " with weight " << recorder.info(weight.value);
  if (bias.valid()) {
    const ValueInfo b = recorder.info(bias);
    CHECK(b.shape == Shape({w[0]})) << "matmul: bias " << b << " of weight " << w;
  }
  return EmitProduct(recorder, {kind, Role::kForward},
                     {.a = x, .b = weight.value, .weight = weight.value, .bias = bias},
                     {.shape = {x_info.shape[0], w[0]}, .name = "product"}, weight);
}

Value Linear(Recorder& recorder, Value x, const LinearWeight& weight, Value bias) {
  return Linear(recorder, recorder.layer_kind(), x, weight, bias);
}

Instance MatMulAdd(const Instance& input_gradient, const Instance& add) {
  const bool is_first = add.inputs.front() == input_gradient.outputs.front();
  Instance joined = add;
  joined.op = OpAs<MatMulOp>(input_gradient).Adding();
  joined.inputs = input_gradient.inputs;
  joined.inputs.insert(joined.inputs.begin() + MatMulOp::kAddend,
                       is_first ? add.inputs.back() : add.inputs.front());
  return joined;
}

}  // namespace trainyard::ops
