// The matrix product of operands in 8-bit formats, in its three roles. The backward of the forward
// product starts from the operands before they were rounded, because each role has its formats.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

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

  // Whether the product sums the rows of the operand: then it reads the copy by columns, because
  // GPUs want the numbers that they sum to be neighbours (kernels/products/scaled_matmul.h).
  static bool ReadsByColumns(Role role, Input operand) {
    return operand == kA ? role == Role::kWeightGradient : role != Role::kForward;
  }

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
    const Shape& a = program.info(instance.inputs[kA]).shape;
    cost.flops =
        ProductFlops(of_weight ? a.back() : a.rows(), program.info(weight).shape.elements());
    return cost;
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const Value out = instance.outputs[kProduct];
    Product product{.role = use_.role,
                    .a = binder.tensor(instance.inputs[kA]),
                    .b = binder.tensor(instance.inputs[kB]),
                    .a_scales = {.scales = binder.tensor(instance.inputs[kAScales]),
                                 .block = a_block_,
                                 .by_columns = ReadsByColumns(use_.role, kA)},
                    .b_scales = {.scales = binder.tensor(instance.inputs[kBScales]),
                                 .block = b_block_,
                                 .by_columns = ReadsByColumns(use_.role, kB)},
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

// The rows of activations: tokens, or samples, which are whole on every rank.
DimOf RowsOf(const Recorder& recorder, const ValueInfo& rows) {
  DimOf dim{.dim = DividedBlock::Dim::kTokens};
  const int64_t tokens = recorder.program().tokens(), here = rows.shape[0];
  const bool whole = here >= tokens;
  const bool divided = !whole && here * recorder.mesh().size(kTensorAxes) == tokens;
  if (!whole && !divided) return dim;
  dim.axes = Axis::kContext;
  // A rank has two runs of each sequence (kernels/device/sequence_part.h).
  dim.runs.push_back({.length = recorder.program().sequence_rows() / 2, .axes = Axis::kContext});
  if (divided) {
    dim.axes = dim.axes | kTensorAxes;
    dim.runs.push_back({.length = here, .axes = kTensorAxes});
  }
  return dim;
}

// Dim 0, the outputs, or 1, the inputs. Parameters that share the storage, and sections of one,
// have runs of their own.
DimOf DimOfWeight(const Recorder& recorder, const ParameterStorage& storage, int dim) {
  using Dim = DividedBlock::Dim;
  DimOf of{.dim = dim == 0 ? Dim::kOutputs : Dim::kInputs};
  const Shard& first = storage.parameters.front().shard;
  if (first.dim != dim) return of;
  of.axes = first.axes;
  for (const ParameterSpec& spec : storage.parameters) {
    const int64_t ranks = recorder.mesh().size(spec.shard.axes);
    for (const int64_t section : spec.shard.sections) {
      of.runs.push_back({section / ranks, spec.shard.axes, spec.name});
    }
    if (!spec.shard.sections.empty()) continue;
    of.runs.push_back({LocalShape(spec, recorder.mesh())[dim], spec.shard.axes, spec.name});
  }
  return of;
}

}  // namespace

Value ScaledProduct(Recorder& recorder, const ProductUse& use, const ProductOf& of,
                    const Recorder::Output& output) {
  const ProductFormat format = recorder.precision().product(use);
  CHECK(format.a.scaling && format.b.scaling)
      << Name(use.kind) << ' ' << Name(use.role) << ": scales of one operand alone";
  const ParameterStorage& storage = recorder.program().storage(of.weight);
  const std::string weight = storage.parameters.front().name;
  const AxisSet varying = recorder.info(of.a).varying;
  const DimOf of_outputs = DimOfWeight(recorder, storage, 0);
  const DimOf of_inputs = DimOfWeight(recorder, storage, 1);
  const auto quantize = [&](Value value, const OperandFormat& operand, int summed) {
    const bool is_weight = value == of.weight;
    const bool is_input = !is_weight && value == (use.role == Role::kForward ? of.a : of.b);
    return Quantize(recorder,
                    {.value = value,
                     .format = operand,
                     .summed = summed,
                     .dims = {is_weight ? of_outputs : RowsOf(recorder, recorder.info(value)),
                              is_weight || is_input ? of_inputs : of_outputs},
                     .varying = varying,
                     .weight = weight,
                     .what = is_weight  ? "weight"
                             : is_input ? "input"
                                        : "output_gradient"});
  };
  const bool a_by_columns = ScaledMatMulOp::ReadsByColumns(use.role, ScaledMatMulOp::kA);
  const bool b_by_columns = ScaledMatMulOp::ReadsByColumns(use.role, ScaledMatMulOp::kB);
  const Quantized a = quantize(of.a, format.a, a_by_columns ? 0 : 1);
  const Quantized b = quantize(of.b, format.b, b_by_columns ? 0 : 1);
  std::vector<Value> inputs = {a_by_columns ? a.by_columns : a.values,
                               b_by_columns ? b.by_columns : b.values, a.scales, b.scales};
  if (of.bias.valid()) inputs.push_back(of.bias);
  return recorder.Emit(std::make_shared<ScaledMatMulOp>(use, a.block, b.block), std::move(inputs),
                       {output})[0];
}

}  // namespace trainyard::ops
