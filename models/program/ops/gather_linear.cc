// Linear layers over tensor ranks: an all-gather before the product, or a reduce-scatter after the
// product. Both work in pieces of rows, so that one piece travels while the product of another is
// computed.
//
//   gather   Every rank's x travels round. In turn t a rank multiplies the x of the rank t places
//            before it, and sends it to the next rank at the same time.
//   scatter  A rank multiplies what another rank needs, and sends the result there while it
//            multiplies for the next rank; its own part comes last. Parts are summed in rank order
//            when all have arrived.
//
// Each is the backward of the other. The gathered x is not kept: for the weight's gradient, x
// travels round again. Products of operands with scales are not done in pieces: x is gathered
// before the product, or the result is scattered after it. Nor are those of a program with a cache,
// whose few rows take as long as reading the weight, because each piece would read it again.
// Sources: Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2; Wang et al. 2023,
// doi:10.1145/3567955.3567959. Letters: n ranks, T rows of one, K summed, N columns.
#include <sstream>

#include "kernels/elementwise/copy_columns.h"
#include "kernels/sums/sum_slices.h"
#include "models/program/binder.h"
#include "models/program/ops/linear_weight.h"
#include "models/program/ops/ops.h"
#include "models/program/ops/ring.h"
#include "models/program/product.h"

namespace trainyard::ops {
namespace {

using Role = ProductRole;

class PiecewiseOp : public Op {
 public:
  explicit PiecewiseOp(AxisSet axes) : axes_(axes) {}
  AxisSet group() const override { return axes_; }
  std::string attributes() const override {
    std::ostringstream out;
    out << "axes=" << axes_;
    return out.str();
  }

 protected:
  // The communication if one piece of each other rank arrives, from the previous rank.
  std::vector<Communication> InRing(const Program& program, Value piece) const {
    return Exchanges(program.mesh.size(axes_) - 1, int64_t(program.info(piece).bytes()));
  }

  const AxisSet axes_;
};

// From dy [n T, N] and x [T, K]. The travelling pieces of x have memory.
class GatherWeightGradientOp final : public PiecewiseOp {
 public:
  enum Input { kDy, kX, kInputs };
  enum Output { kDweight, kTravelling, kOutputs };
  using PiecewiseOp::PiecewiseOp;
  absl::string_view name() const override { return "gather_matmul_weight_gradient"; }
  std::optional<OperandCounts> operand_counts() const override {
    return OperandCounts{.inputs = kInputs, .outputs = kOutputs};
  }
  Cost CostOf(const Program& program, const Instance& instance) const override {
    Cost cost = Op::CostOf(program, instance);
    cost.flops = ProductFlops(program.info(instance.inputs[kDy]).shape.rows(),
                              program.info(instance.outputs[kDweight]).shape.elements());
    return cost;
  }
  std::vector<Communication> CommunicationOf(const Program& program,
                                             const Instance& instance) const override {
    return InRing(program, instance.inputs[kX]);
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    Collective& group = binder.collective(axes_);
    const Ring ring = Ring::Of(group);
    const Tensor dy = binder.tensor(instance.inputs[kDy]);
    const Tensor dw = binder.tensor(instance.outputs[kDweight]);
    const Tensor memory = binder.tensor(instance.outputs[kTravelling]);
    Tensor x = binder.tensor(instance.inputs[kX]);
    const int64_t rows = x.shape[0], places = memory.shape[0] / rows;
    std::vector<Call> calls;
    for (int64_t turn = 0; turn < ring.ranks; ++turn) {
      Call product = BindProduct(
          binder, {.role = Role::kWeightGradient,
                   .a = Piece(dy, ring.before(turn), rows),
                   .b = x,
                   .out = dw,
                   .write = turn == 0 ? binder.write(instance.outputs[kDweight]) : Write::kAdd});
      if (turn + 1 == ring.ranks) {
        calls.push_back(std::move(product));
        break;
      }
      const Tensor next_x = Piece(memory, turn % places, rows);
      calls.push_back(
          WhileExchanging(group, {x, ring.next(), next_x, ring.previous()}, std::move(product)));
      x = next_x;
    }
    return InOrder(std::move(calls));
  }
};

// From x [T, K] to y [n T, N]. x of all ranks is [n T, K].
class GatherLinearOp final : public PiecewiseOp {
 public:
  enum Input { kX, kWeight, kBias, kInputs };
  enum Output { kY, kAllX, kOutputs };
  GatherLinearOp(const ProductUse& use, const WeightInputs& weight, AxisSet axes)
      : PiecewiseOp(axes), kind_(use.kind), role_(use.role), weight_(weight) {}
  absl::string_view name() const override {
    return role_ == Role::kForward ? "gather_matmul" : "gather_matmul_input_gradient";
  }
  std::optional<OperandCounts> operand_counts() const override {
    return OperandCounts{
        .inputs = kInputs + weight_.count(), .outputs = kOutputs, .optional_inputs = 1};
  }
  Cost CostOf(const Program& program, const Instance& instance) const override {
    Cost cost = Op::CostOf(program, instance);
    cost.flops = ProductFlops(program.info(instance.outputs[kY]).shape.rows(),
                              ShapeOf(program, weight_.Of(instance, kWeight)).elements());
    return cost;
  }
  std::optional<Kept> KeptOnGpu(const Program& program, const Instance& instance) const override {
    const ValueInfo &x = program.info(instance.inputs[kX]), &y = program.info(instance.outputs[kY]);
    return weight_.KeptOnGpu(program, {.rows = x.shape.rows(), .summed = x.shape.back()},
                             y.shape.back());
  }
  std::vector<Communication> CommunicationOf(const Program& program,
                                             const Instance& instance) const override {
    return InRing(program, instance.inputs[kX]);
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    Collective& group = binder.collective(axes_);
    const Ring ring = Ring::Of(group);
    const Tensor x = binder.tensor(instance.inputs[kX]), y = binder.tensor(instance.outputs[kY]);
    const Tensor all = binder.tensor(instance.outputs[kAllX]);
    const int64_t rows = x.shape[0];
    std::vector<Call> calls = {binder.Kernel(CopyColumnsArgs{.x = x,
                                                             .x_begin = 0,
                                                             .y = Piece(all, ring.rank, rows),
                                                             .y_begin = 0,
                                                             .columns = x.shape[1]})};
    for (int64_t turn = 0; turn < ring.ranks; ++turn) {
      const int owner = ring.before(turn);
      Product piece{.role = role_,
                    .a = Piece(all, owner, rows),
                    .b = binder.tensor(instance.inputs[kWeight]),
                    .out = Piece(y, owner, rows),
                    .nf4 = weight_.Bind(binder, instance)};
      if (weight_.others(instance) > kBias) {
        piece.epilogue.bias = binder.tensor(instance.inputs[kBias]);
      }
      Call product = BindProduct(binder, piece);
      if (turn + 1 < ring.ranks) {
        const Tensor received = Piece(all, ring.before(turn + 1), rows);
        product = WhileExchanging(group, {piece.a, ring.next(), received, ring.previous()},
                                  std::move(product));
      }
      calls.push_back(std::move(product));
    }
    return InOrder(std::move(calls));
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override;

 private:
  const ProductKind kind_;
  const Role role_;
  const WeightInputs weight_;
};

// From x [n T, K] to y [T, N]. This rank's parts from every rank [n T, N], and parts that travel to
// others, have memory.
class LinearScatterOp final : public PiecewiseOp {
 public:
  enum Input { kX, kWeight, kInputs };
  enum Output { kY, kParts, kTravelling, kOutputs };
  LinearScatterOp(const ProductUse& use, const WeightInputs& weight, AxisSet axes)
      : PiecewiseOp(axes), kind_(use.kind), role_(use.role), weight_(weight) {}
  absl::string_view name() const override {
    return role_ == Role::kForward ? "matmul_scatter" : "matmul_scatter_input_gradient";
  }
  std::optional<OperandCounts> operand_counts() const override {
    return OperandCounts{.inputs = kInputs + weight_.count(), .outputs = kOutputs};
  }
  Cost CostOf(const Program& program, const Instance& instance) const override {
    Cost cost = Op::CostOf(program, instance);
    cost.flops = ProductFlops(program.info(instance.inputs[kX]).shape.rows(),
                              ShapeOf(program, weight_.Of(instance, kWeight)).elements());
    return cost;
  }
  std::optional<Kept> KeptOnGpu(const Program& program, const Instance& instance) const override {
    const ValueInfo &x = program.info(instance.inputs[kX]), &y = program.info(instance.outputs[kY]);
    return weight_.KeptOnGpu(program, {.rows = y.shape.rows(), .summed = x.shape.back()},
                             y.shape.back());
  }
  std::vector<Communication> CommunicationOf(const Program& program,
                                             const Instance& instance) const override {
    const int others = program.mesh.size(axes_) - 1;  // Each gets its piece directly.
    return Exchanges(others, int64_t(program.info(instance.outputs[kY]).bytes()), others);
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    Collective& group = binder.collective(axes_);
    const Ring ring = Ring::Of(group);
    const Tensor x = binder.tensor(instance.inputs[kX]), y = binder.tensor(instance.outputs[kY]);
    const Tensor parts = binder.tensor(instance.outputs[kParts]);
    const Tensor memory = binder.tensor(instance.outputs[kTravelling]);
    const int64_t rows = y.shape[0], places = memory.shape[0] / rows;
    const auto going = [&](int64_t turn) { return Piece(memory, turn % places, rows); };
    // The part for the rank `turn` places after this one; in the last turn, for this rank.
    const auto product = [&](int64_t turn) {
      const bool own = turn == ring.ranks;
      return BindProduct(binder, {.role = role_,
                                  .a = Piece(x, ring.after(turn), rows),
                                  .b = binder.tensor(instance.inputs[kWeight]),
                                  .out = own ? Piece(parts, ring.rank, rows) : going(turn),
                                  .nf4 = weight_.Bind(binder, instance)});
    };
    std::vector<Call> calls = {product(1)};
    for (int64_t turn = 1; turn < ring.ranks; ++turn) {
      const int from = ring.before(turn);
      calls.push_back(
          WhileExchanging(group, {going(turn), ring.after(turn), Piece(parts, from, rows), from},
                          product(turn + 1)));
    }
    calls.push_back(binder.Kernel(SumSlicesArgs{.x = parts, .y = y}));
    return InOrder(std::move(calls));
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override;

 private:
  const ProductKind kind_;
  const Role role_;
  const WeightInputs weight_;
};

struct Sizes {
  int64_t ranks;
  int64_t places;  // For travelling pieces: one is sent while the next arrives.
};
Sizes SizesOf(Recorder& recorder, Value x, AxisSet axes) {
  const ValueInfo& info = recorder.info(x);
  CHECK((axes - info.varying).empty())
      << "gradients of " << info << " do not vary along " << axes << ", over which it is sent";
  const int64_t ranks = recorder.mesh().size(axes);
  return {ranks, std::min<int64_t>(2, ranks - 1)};
}

// Returns y, and the gathered x.
std::vector<Value> EmitGather(Recorder& recorder, const ProductUse& use, const LinearOperands& of,
                              AxisSet axes) {
  const ValueInfo x = recorder.info(of.x);
  const Shape w = ShapeOf(recorder.program(), of.weight);
  const int summed = use.role == Role::kForward ? 1 : 0;
  const DType dtype = FormatOf(recorder, use, of.x, of.weight.value).result;
  CHECK(x.shape.rank() == 2 && w.rank() == 2 && x.shape[1] == w[summed])
      << "gather_matmul: " << x << " with weight " << recorder.info(of.weight.value);
  const int64_t rows = x.shape[0] * SizesOf(recorder, of.x, axes).ranks;
  const WeightInputs weight(of.weight);
  std::vector<Value> inputs = {of.x, of.weight.value};
  if (of.bias.valid()) inputs.push_back(of.bias);
  weight.Append(of.weight, inputs);
  return recorder.Emit(std::make_shared<GatherLinearOp>(use, weight, axes), std::move(inputs),
                       {{.shape = {rows, w[1 - summed]}, .dtype = dtype, .name = "product"},
                        Recorder::Output::Memory("gathered", {rows, x.shape[1]}, x.dtype)});
}

Value EmitScatter(Recorder& recorder, const ProductUse& use, Value x, const LinearWeight& of_weight,
                  AxisSet axes) {
  const ValueInfo info = recorder.info(x);
  const Shape w = ShapeOf(recorder.program(), of_weight);
  const int summed = use.role == Role::kForward ? 1 : 0;
  const auto [ranks, places] = SizesOf(recorder, x, axes);
  CHECK(info.shape.rank() == 2 && w.rank() == 2 && info.shape[1] == w[summed] &&
        info.shape[0] % ranks == 0)
      << "matmul_scatter: " << info << " with weight " << recorder.info(of_weight.value)
      << ", rows for " << ranks << " ranks";
  const int64_t rows = info.shape[0] / ranks, columns = w[1 - summed];
  const DType dtype = FormatOf(recorder, use, x, of_weight.value).result;
  const WeightInputs weight(of_weight);
  std::vector<Value> inputs = {x, of_weight.value};
  weight.Append(of_weight, inputs);
  return recorder.Emit(
      std::make_shared<LinearScatterOp>(use, weight, axes), std::move(inputs),
      {{.shape = {rows, columns}, .dtype = dtype, .name = "scattered"},
       Recorder::Output::Memory("parts", {ranks * rows, columns}, dtype),
       Recorder::Output::Memory("parts_on_their_way", {places * rows, columns}, dtype)})[0];
}

std::vector<Value> GatherLinearOp::Backward(Recorder& recorder, const Instance& instance,
                                            std::span<const Value> output_grads) const {
  CHECK(role_ == Role::kForward) << name() << " has no backward";
  const Value x = instance.inputs[kX], w = instance.inputs[kWeight], dy = output_grads[kY];
  std::vector<Value> grads(instance.inputs.size());
  if (weight_.others(instance) > kBias) BiasGradient(recorder, dy, instance.inputs[kBias]);
  const ValueInfo info = recorder.info(x);
  if (info.differentiable) {
    grads[kX] = EmitScatter(recorder, {kind_, Role::kInputGradient}, dy,
                            weight_.Of(instance, kWeight), axes_);
  }
  if (!recorder.IsTrainable(w)) return grads;
  const int64_t places = SizesOf(recorder, x, axes_).places;
  FormatOf(recorder, {kind_, Role::kWeightGradient}, dy, x);
  recorder.set_list(List::kBackwardWeight);
  recorder.Emit(std::make_shared<GatherWeightGradientOp>(axes_), {dy, x},
                {Recorder::Output::Into(recorder.Gradient(w)),
                 Recorder::Output::Memory("rows_on_their_way",
                                          {places * info.shape[0], info.shape[1]}, info.dtype)});
  recorder.set_list(List::kBackwardInput);
  return grads;
}

// The gathered gradient serves for the input's gradient and for the weight's.
std::vector<Value> LinearScatterOp::Backward(Recorder& recorder, const Instance& instance,
                                             std::span<const Value> output_grads) const {
  CHECK(role_ == Role::kForward) << name() << " has no backward";
  const Value x = instance.inputs[kX], w = instance.inputs[kWeight];
  if (!recorder.info(x).differentiable) {
    const Value dy = AllGather(recorder, output_grads[kY], axes_);
    WeightGradient(recorder, kind_, {.dy = dy, .x = x, .weight = w});
    return std::vector<Value>(instance.inputs.size());
  }
  const std::vector<Value> dx =
      EmitGather(recorder, {kind_, Role::kInputGradient},
                 {output_grads[kY], weight_.Of(instance, kWeight), {}}, axes_);
  WeightGradient(recorder, kind_, {.dy = dx[GatherLinearOp::kAllX], .x = x, .weight = w});
  std::vector<Value> grads(instance.inputs.size());
  grads[kX] = dx[GatherLinearOp::kY];
  return grads;
}

// Whether one piece travels while the product of another is computed.
bool InPieces(const Recorder& recorder, ProductKind kind, AxisSet axes) {
  return !axes.empty() && !recorder.precision().HasScales(kind) && recorder.program().cache == 0;
}

}  // namespace

Value GatherLinear(Recorder& recorder, ProductKind kind, const LinearOperands& of, AxisSet axes) {
  axes = axes & recorder.mesh().active();
  if (!InPieces(recorder, kind, axes)) {
    return Linear(recorder, kind, AllGather(recorder, of.x, axes), of.weight, of.bias);
  }
  return EmitGather(recorder, {kind, Role::kForward}, of, axes)[0];
}

Value GatherLogits(Recorder& recorder, Value x, Value weight, AxisSet axes) {
  axes = axes & recorder.mesh().active();
  if (!InPieces(recorder, ProductKind::kHead, axes)) {
    return Linear(recorder, ProductKind::kHead, AllGather(recorder, x, axes), weight);
  }
  return EmitGather(recorder, {ProductKind::kHead, Role::kForward}, {x, weight, {}}, axes)[0];
}

Value LinearScatter(Recorder& recorder, ProductKind kind, Value x, const LinearWeight& weight,
                    AxisSet axes) {
  axes = axes & recorder.mesh().active();
  if (!InPieces(recorder, kind, axes)) {
    return ReduceScatter(recorder, Linear(recorder, kind, x, weight), axes);
  }
  return EmitScatter(recorder, {kind, Role::kForward}, x, weight, axes);
}

}  // namespace trainyard::ops
