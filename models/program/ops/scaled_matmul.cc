// The matrix product of operands in 8-bit formats, in its three roles. The backward of the forward
// product starts from the operands before they were rounded, because each role has its formats.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"
#include "models/program/ops/quantize.h"
#include "models/program/ops/scaled_product.h"
#include "models/program/product.h"

namespace trainyard::ops {
namespace {

using Role = ProductRole;

class ScaledMatMulOp final : public NamedOp<ScaledMatMulOp> {
 public:
  enum Input { kA, kB, kAScales, kBScales, kBias, kInputs };  // kBias: forward, if any.
  enum Output { kProduct, kOutputs };
  static constexpr size_t kOptionalInputs = 1;
  ScaledMatMulOp(const ProductUse& use, const ScaleBlock& a, const ScaleBlock& b)
      : use_(use), a_block_(a), b_block_(b) {}

  absl::string_view name() const override {
    switch (use_.role) {
      case Role::kForward:
        return "scaled_matmul";
      case Role::kInputGradient:
        return "scaled_matmul_input_gradient";
      case Role::kWeightGradient:
        return "scaled_matmul_weight_gradient";
    }
    return "?";
  }
  Cost CostOf(const Program& program, const Instance& instance) const override {
    Cost cost = Op::CostOf(program, instance);
    const bool of_weight = use_.role == Role::kWeightGradient;
    const Value weight = of_weight ? instance.outputs[kProduct] : instance.inputs[kB];
    cost.flops = ProductFlops(program.info(instance.inputs[kA]).shape.rows(),
                              program.info(weight).shape.elements());
    return cost;
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const Value out = instance.outputs[kProduct];
    Product product{
        .role = use_.role,
        .a = binder.tensor(instance.inputs[kA]),
        .b = binder.tensor(instance.inputs[kB]),
        .a_scales = {.scales = binder.tensor(instance.inputs[kAScales]), .block = a_block_},
        .b_scales = {.scales = binder.tensor(instance.inputs[kBScales]), .block = b_block_},
        .out = binder.tensor(out)};
    if (instance.inputs.size() > kBias) {
      product.epilogue.bias = binder.tensor(instance.inputs[kBias]);
    }
    if (use_.role == Role::kWeightGradient) product.write = binder.write(out);
    return BindProduct(binder, product);
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    CHECK(use_.role == Role::kForward) << name() << " has no backward";
    const auto original = [&](Value rounded) {
      const std::vector<Quantized>& all = recorder.quantized();
      const auto found = std::find_if(all.begin(), all.end(), [&](const Quantized& quantized) {
        return quantized.values == rounded;
      });
      CHECK(found != all.end()) << recorder.info(rounded) << " was not rounded by Quantize";
      return found->of;
    };
    std::vector<Value> grads(instance.inputs.size());
    grads[kA] = LinearGradients(
        recorder, use_.kind,
        {.dy = output_grads[kProduct],
         .x = original(instance.inputs[kA]),
         .weight = original(instance.inputs[kB]),
         .bias = instance.inputs.size() > kBias ? instance.inputs[kBias] : Value{}});
    return grads;
  }

 private:
  ProductUse use_;
  ScaleBlock a_block_, b_block_;
};

// The axes over which ranks divide the rows of activations. Samples are whole on every rank.
AxisSet RowAxes(const Recorder& recorder, const ValueInfo& rows) {
  const int64_t tokens = recorder.program().tokens();
  if (rows.shape[0] >= tokens) return Axis::kContext;
  const bool divided = rows.shape[0] * recorder.mesh().size(kTensorAxes) == tokens;
  return divided ? kTensorAxes | Axis::kContext : AxisSet{};
}

}  // namespace

Value ScaledProduct(Recorder& recorder, const ProductUse& use, const ProductOf& of,
                    const Recorder::Output& output) {
  const ProductFormat format = recorder.precision().product(use);
  CHECK(format.a.scaling && format.b.scaling)
      << Name(use.kind) << ' ' << Name(use.role) << ": scales of one operand alone";
  const ParameterSpec& weight = recorder.program().storage(of.weight).parameters.front();
  const ValueInfo a_info = recorder.info(of.a);
  // The axes of the weight's dims: 0 the outputs, 1 the inputs.
  const auto divided = [&](int dim) {
    return weight.shard.dim == dim ? weight.shard.axes : AxisSet{};
  };
  const auto quantize = [&](Value value, const OperandFormat& operand, int summed) {
    const bool is_weight = value == of.weight;
    const bool is_input = !is_weight && value == (use.role == Role::kForward ? of.a : of.b);
    const char* const name = is_weight ? "weight" : is_input ? "input" : "output_gradient";
    return Quantize(recorder,
                    {.value = value,
                     .format = operand,
                     .summed = summed,
                     .axes = {is_weight ? divided(0) : RowAxes(recorder, recorder.info(value)),
                              divided(is_weight || is_input ? 1 : 0)},
                     .varying = a_info.varying,
                     .name = absl::StrCat(weight.name, ".amax.", name)});
  };
  const bool forward = use.role == Role::kForward;
  const bool of_weight = use.role == Role::kWeightGradient;
  const Quantized a = quantize(of.a, format.a, of_weight ? 0 : 1);
  const Quantized b = quantize(of.b, format.b, forward ? 1 : 0);
  std::vector<Value> inputs = {a.values, b.values, a.scales, b.scales};
  if (of.bias.valid()) inputs.push_back(of.bias);
  return recorder.Emit(std::make_shared<ScaledMatMulOp>(use, a.block, b.block), std::move(inputs),
                       {output})[0];
}

}  // namespace trainyard::ops
