// The experts of a layer. Every token's row is sent to the experts that the token chose, wherever
// they are, and the sum of their outputs comes back.
//
// A token's weight for an expert is multiplied in between the expert's two products. So the
// gradient of the weight is found on the rank of the expert, and the expert's output need not be
// kept. The values that backward needs are kept for one round. If there were more rounds, backward
// sends the rows again.
#include <algorithm>
#include <cmath>
#include <utility>

#include "models/program/ops/expert_mlp_backward.h"
#include "models/program/ops/expert_op.h"
#include "models/program/product.h"

namespace trainyard::ops {
namespace {

using Row = ExpertDispatch::Row;

// Computes again what backward needs, if the layer is recomputed: rows are sent to their experts
// and go through the first product, and nothing comes back. Backward needs nothing from further
// rounds.
class ExpertMlpArrivalOp final : public ExpertOp {
 public:
  // An instance has those of which Has() is true.
  enum Input {
    kX,
    kExperts,
    kWeights,
    kGateUp,
    kGateUpScales,
    kGateUpGroups,
    kGateUpBias,
    kFirstDown,
    kFirstUp,
    kInputHistory,
    kWeightHistory,
    kInputs
  };
  // What the dispatch keeps, and its memory, come last.
  enum Output {
    kRows,
    kRowWeights,
    kUp,
    kFirstNarrow,
    kFactors,
    kRoundedRows,
    kRoundedGateUp,
    kDispatch
  };
  using ExpertOp::ExpertOp;
  absl::string_view name() const override { return "expert_mlp_arrival"; }
  bool Has(Input input) const {
    if (input == kGateUpScales || input == kGateUpGroups) return form_.nf4;
    if (input == kGateUpBias) return form_.bias;
    if (input == kFirstDown || input == kFirstUp) return form_.first_adapter;
    return (input != kInputHistory && input != kWeightHistory) || form_.has_histories();
  }
  bool Has(Output output) const {
    if (output == kFirstNarrow) return form_.first_adapter;
    const bool rounded = output == kFactors || output == kRoundedRows || output == kRoundedGateUp;
    return !rounded || form_.rounding.has_value();
  }
  std::optional<OperandCounts> operand_counts() const override {
    return OperandCounts{.inputs = At(kInputs),
                         .outputs = At(kDispatch) + num_kept() + num_memory()};
  }
  Cost CostOf(const Program& program, const Instance& instance) const override {
    Cost cost = Op::CostOf(program, instance);
    cost.flops = FlopsOf(form_.up_matrices()) + FlopsOfFirstAdapter();
    for (const Value rounded : {instance.outputs[At(kRows)], instance.inputs[At(kGateUp)]}) {
      cost.bytes += BytesOfRounding(double(program.info(rounded).bytes()), !form_.has_histories());
    }
    return cost;
  }
  std::vector<Communication> CommunicationOf(const Program& program,
                                             const Instance&) const override {
    return {Counts(), Travel(program.precision, 1)};
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const auto in = [&](Input i) {
      return Has(i) ? binder.tensor(instance.inputs[At(i)]) : Tensor{};
    };
    const auto out = [&](Output i) {
      return Has(i) ? binder.tensor(instance.outputs[At(i)]) : Tensor{};
    };
    const auto dispatch = DispatchOf(binder, instance, At(kDispatch));
    ExpertRounder rounder(binder, form_.rounding, out(kFactors));
    rounder.set_history(Rounded::kFirstInput, in(kInputHistory));
    rounder.set_history(Rounded::kFirstWeight, in(kWeightHistory));
    std::vector<Call> prepare;
    ScaledOperand gate_up =
        rounder(Rounded::kFirstWeight, in(kGateUp), out(kRoundedGateUp), {}, prepare);
    gate_up.nf4 = Nf4Of(in(kGateUpScales), in(kGateUpGroups), form_.up_matrices());
    const Arrival arrival{.x = in(kX),
                          .rows = out(kRows),
                          .weights = in(kWeights),
                          .row_weights = out(kRowWeights),
                          .gate_up = gate_up,
                          .up = out(kUp),
                          .gate_up_bias = in(kGateUpBias),
                          .adapter = {.down = in(kFirstDown),
                                      .up = in(kFirstUp),
                                      .narrow = out(kFirstNarrow),
                                      .offsets = dispatch->offsets(),
                                      .scale = form_.adapter_scale},
                          .rounder = rounder,
                          .rounded_rows = out(kRoundedRows)};
    Call sort = dispatch->Sort(binder, in(kExperts));
    return [dispatch, sort = std::move(sort), prepare = std::move(prepare),
            arrive = arrival.Calls(binder, *dispatch)](Exec& exec) {
      sort(exec);
      if (dispatch->Load(exec) > 1) return;
      dispatch->Begin(exec, 0);
      RunAll(prepare, exec);
      RunAll(arrive, exec);
    };
  }

 private:
  template <typename Operand>
  size_t At(Operand operand) const {
    return IndexOf(operand, [this](Operand before) { return Has(before); });
  }
};

class ExpertMlpOp final : public ExpertOp {
 public:
  // An instance has those of which Has() is true.
  enum Input {
    kX,
    kExperts,
    kWeights,
    kGateUp,
    kDown,
    kGateUpScales,
    kGateUpGroups,
    kDownScales,
    kDownGroups,
    kGateUpBias,
    kDownBias,
    kFirstDown,
    kFirstUp,
    kSecondDown,
    kSecondUp,
    kFirstInputHistory,  // In the order of Rounded.
    kFirstWeightHistory,
    kSecondInputHistory,
    kSecondWeightHistory,
    kInputs
  };
  // Backward needs rows, their weights, up, and the first adapter's narrow rows. The values between
  // the products, the experts' results, the second adapter's narrow rows, and what is rounded are
  // memory. The values between the products are rounded where they are. What the dispatch keeps,
  // and its memory, come last.
  enum Output {
    kY,
    kRows,
    kRowWeights,
    kUp,
    kFirstNarrow,
    kHidden,
    kResult,
    kSecondNarrow,
    kFactors,
    kRoundedRows,
    kRoundedGateUp,
    kRoundedDown,
    kDispatch
  };

  using ExpertOp::ExpertOp;
  absl::string_view name() const override { return "expert_mlp"; }
  bool Has(Input input) const {
    if (input >= kGateUpScales && input <= kDownGroups) return form_.nf4;
    if (input == kGateUpBias || input == kDownBias) return form_.bias;
    if (input == kFirstDown || input == kFirstUp) return form_.first_adapter;
    if (input >= kFirstInputHistory) return form_.has_histories();
    return (input != kSecondDown && input != kSecondUp) || form_.second_adapter;
  }
  bool Has(Output output) const {
    if (output == kFirstNarrow) return form_.first_adapter;
    if (output >= kFactors && output < kDispatch) return form_.rounding.has_value();
    return output != kSecondNarrow || form_.second_adapter;
  }
  std::optional<OperandCounts> operand_counts() const override {
    return OperandCounts{.inputs = At(kInputs),
                         .outputs = At(kDispatch) + num_kept() + num_memory()};
  }
  Cost CostOf(const Program& program, const Instance& instance) const override {
    Cost cost = Op::CostOf(program, instance);
    cost.flops = FlopsOf(form_.matrices()) + FlopsOfAdapters();
    const double hidden = double(program.info(instance.outputs[At(kHidden)]).bytes());
    const bool looks = !form_.has_histories();
    for (const Value rounded :
         {instance.outputs[At(kRows)], instance.inputs[At(kGateUp)], instance.inputs[At(kDown)]}) {
      cost.bytes += BytesOfRounding(double(program.info(rounded).bytes()), looks);
    }
    cost.bytes += BytesOfRounding(hidden, looks) + BytesOfRounding(hidden, false);  // In place.
    return cost;
  }
  std::vector<Communication> CommunicationOf(const Program& program,
                                             const Instance&) const override {
    return {Counts(), Travel(program.precision, 2)};
  }
  Instance Narrowed(const Instance& instance, const std::vector<bool>& read) const override {
    if (read[kY]) return instance;
    Instance arrival = instance;
    arrival.op = std::make_shared<ExpertMlpArrivalOp>(shape_, form_);
    // From the last to the first, so that the places of those before stay as they are.
    for (const Input input : {kSecondWeightHistory, kSecondInputHistory, kSecondUp, kSecondDown,
                              kDownBias, kDownGroups, kDownScales, kDown}) {
      if (Has(input)) arrival.inputs.erase(arrival.inputs.begin() + std::ptrdiff_t(At(input)));
    }
    for (const Output output : {kRoundedDown, kSecondNarrow, kResult, kHidden, kY}) {
      if (Has(output)) arrival.outputs.erase(arrival.outputs.begin() + std::ptrdiff_t(At(output)));
    }
    return arrival;
  }
  Call Bind(const Binder& binder, const Instance& instance) const override;
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override;

 private:
  template <typename Operand>
  size_t At(Operand operand) const {
    return IndexOf(operand, [this](Operand before) { return Has(before); });
  }
};

Call ExpertMlpOp::Bind(const Binder& binder, const Instance& instance) const {
  const auto in = [&](Input i) {
    return Has(i) ? binder.tensor(instance.inputs[At(i)]) : Tensor{};
  };
  const auto out = [&](Output i) {
    return Has(i) ? binder.tensor(instance.outputs[At(i)]) : Tensor{};
  };
  const auto dispatch = DispatchOf(binder, instance, At(kDispatch));
  const Tensor row_weights = out(kRowWeights), up = out(kUp);
  const Tensor hidden = out(kHidden), result = out(kResult);
  const BoundAdapter first_adapter{.down = in(kFirstDown),
                                   .up = in(kFirstUp),
                                   .narrow = out(kFirstNarrow),
                                   .offsets = dispatch->offsets(),
                                   .scale = form_.adapter_scale};
  const BoundAdapter second_adapter{.down = in(kSecondDown),
                                    .up = in(kSecondUp),
                                    .narrow = out(kSecondNarrow),
                                    .offsets = dispatch->offsets(),
                                    .scale = form_.adapter_scale};
  ExpertRounder rounder(binder, form_.rounding, out(kFactors));
  for (int i = 0; i < kRoundedForward; ++i) {
    rounder.set_history(Rounded(i), in(Input(kFirstInputHistory + i)));
  }
  std::vector<Call> prepare;
  ScaledOperand gate_up =
      rounder(Rounded::kFirstWeight, in(kGateUp), out(kRoundedGateUp), {}, prepare);
  ScaledOperand down = rounder(Rounded::kSecondWeight, in(kDown), out(kRoundedDown), {}, prepare);
  gate_up.nf4 = Nf4Of(in(kGateUpScales), in(kGateUpGroups), form_.up_matrices());
  const Arrival arrival{.x = in(kX),
                        .rows = out(kRows),
                        .weights = in(kWeights),
                        .row_weights = row_weights,
                        .gate_up = gate_up,
                        .up = up,
                        .gate_up_bias = in(kGateUpBias),
                        .adapter = first_adapter,
                        .rounder = rounder,
                        .rounded_rows = out(kRoundedRows)};
  std::vector<Call> round = arrival.Calls(binder, *dispatch);
  round.push_back(Activate(binder, up, row_weights, dispatch->received(), hidden));
  if (second_adapter.valid()) second_adapter.Narrow(binder, hidden, round);
  const ScaledOperand input =
      rounder(Rounded::kSecondInput, hidden, hidden, dispatch->offsets(), round);
  Product product{.role = ProductRole::kForward,
                  .a = input.values,
                  .b = down.values,
                  .a_scales = input.scales,
                  .b_scales = down.scales,
                  .offsets = dispatch->offsets(),
                  .out = result,
                  .nf4 = Nf4Of(in(kDownScales), in(kDownGroups), 1)};
  if (form_.bias) product.epilogue = {.bias = in(kDownBias), .bias_factor = row_weights};
  round.push_back(BindProduct(binder, product));
  if (second_adapter.valid()) second_adapter.AddOutputs(binder, result, round);
  Call sort = dispatch->Sort(binder, in(kExperts));
  Call first = dispatch->FromExperts(binder, Row::kToken, result, out(kY), Write::kOverwrite);
  Call later = dispatch->FromExperts(binder, Row::kToken, result, out(kY), Write::kAdd);
  return [dispatch, sort = std::move(sort), prepare = std::move(prepare), round = std::move(round),
          first = std::move(first), later = std::move(later)](Exec& exec) {
    sort(exec);
    const int64_t rounds = dispatch->Load(exec);
    RunAll(prepare, exec);
    for (int64_t i = 0; i < rounds; ++i) {
      dispatch->Begin(exec, i);
      RunAll(round, exec);
      (i == 0 ? first : later)(exec);
    }
  };
}

// CHECKs the formats of the operands of a product. What is rounded has other ones in the product.
void CheckFormats(const Recorder& recorder, const ExpertForm& form, ProductRole role,
                  const std::pair<Value, Value>& operands) {
  if (form.rounding) return;
  FormatOf(recorder, {form.kind, role}, operands.first, operands.second);
}

std::vector<Value> ExpertMlpOp::Backward(Recorder& recorder, const Instance& instance,
                                         std::span<const Value> output_grads) const {
  const auto in = [&](Input i) { return instance.inputs[At(i)]; };
  const auto kept = [&](Output i) { return instance.outputs[At(i)]; };
  const Value dy = output_grads[kY];
  const ValueInfo x = recorder.info(in(kX)), weights = recorder.info(in(kWeights));
  CheckFormats(recorder, form_, ProductRole::kInputGradient, {dy, in(kGateUp)});
  CheckFormats(recorder, form_, ProductRole::kWeightGradient, {dy, in(kX)});
  std::vector<Value> inputs = {dy,        in(kX),      in(kWeights),      in(kGateUp),
                               in(kDown), kept(kRows), kept(kRowWeights), kept(kUp)};
  std::vector<Recorder::Output> outputs = {
      {.shape = x.shape, .dtype = x.dtype, .name = "dx"},
      {.shape = weights.shape, .dtype = weights.dtype, .name = "dweights"}};
  const auto add_gradient = [&](Input parameter) {
    const bool trainable = recorder.IsTrainable(in(parameter));
    if (trainable) outputs.push_back(Recorder::Output::Into(recorder.Gradient(in(parameter))));
    return trainable;
  };
  const auto add_adapter = [&](Input down, Input up) {
    for (const Input matrix : {down, up}) {
      inputs.push_back(in(matrix));
      outputs.push_back(recorder.GradientOutput(in(matrix)));
    }
  };
  ExpertMlpBackwardOp::Trainable trainable{.gate_up = add_gradient(kGateUp)};
  trainable.down = add_gradient(kDown);
  outputs.push_back(Recorder::Output::Memory("drows", {shape_.bound, shape_.width}, x.dtype));
  outputs.push_back(Recorder::Output::Memory("dhidden", {shape_.bound, form_.ffn}, x.dtype));
  if (form_.nf4) {
    for (auto i : {kGateUpScales, kGateUpGroups, kDownScales, kDownGroups}) inputs.push_back(in(i));
  }
  if (form_.bias) {
    inputs.insert(inputs.end(), {in(kGateUpBias), in(kDownBias)});
    trainable.gate_up_bias = add_gradient(kGateUpBias);
    trainable.down_bias = add_gradient(kDownBias);
  }
  if (form_.first_adapter) {
    add_adapter(kFirstDown, kFirstUp);
    inputs.push_back(kept(kFirstNarrow));
  }
  if (form_.second_adapter) {
    add_adapter(kSecondDown, kSecondUp);
    const ValueInfo narrow = recorder.info(kept(kSecondNarrow));
    outputs.push_back(Recorder::Output::Memory("second_narrow", narrow.shape, narrow.dtype));
  }
  if (form_.rounding) {
    for (const Value history :
         HistoriesOfExperts(recorder, *form_.rounding, in(kGateUp), in(kDown), kRoundedBackward)) {
      inputs.push_back(history);
      outputs.push_back(Recorder::Output::Into(recorder.Gradient(history)));
    }
    const RoundedShapes rounded_shapes{.rows = shape_.bound,
                                       .first_weight = recorder.info(in(kGateUp)).shape,
                                       .second_weight = recorder.info(in(kDown)).shape};
    outputs.push_back(
        FactorsOfExperts(recorder, *form_.rounding, rounded_shapes, kRoundedBackward));
    for (const Output rounded : {kRoundedRows, kRoundedGateUp, kRoundedDown}) {
      const ValueInfo like = recorder.info(kept(rounded));
      outputs.push_back(Recorder::Output::Memory("rounded", like.shape, like.dtype));
    }
  }
  for (size_t i = 0; i < num_kept(); ++i) inputs.push_back(instance.outputs[At(kDispatch) + i]);
  const std::vector<Value> grads = recorder.Emit(
      std::make_shared<ExpertMlpBackwardOp>(shape_, form_, trainable), std::move(inputs),
      Joined(outputs, ExpertDispatch::Memory(shape_, recorder.precision())));
  std::vector<Value> result(instance.inputs.size());
  result[kX] = grads[ExpertMlpBackwardOp::kDx];
  result[kWeights] = grads[ExpertMlpBackwardOp::kDweights];
  return result;
}

// CHECKs the shapes and formats of the adapters, and puts them into the form.
void AddAdapters(Recorder& recorder, const ExpertMlpInputs& inputs, ExpertForm& form) {
  const auto check = [&](const ExpertAdapter& adapter, const ExpertWeight& weight, Value in) {
    if (!adapter.valid()) return false;
    const Shape down = recorder.info(adapter.down).shape, up = recorder.info(adapter.up).shape;
    const Shape w = ShapeOf(recorder.program(), weight);
    if (form.rank == 0 && down.rank() == 3) form.rank = down[1];
    CHECK(down == Shape({w[0], form.rank, w[2]}) && up == Shape({w[0], w[1], form.rank}))
        << "expert_mlp: adapter " << down << ", " << up << " of " << w;
    FormatOf(recorder, {ProductKind::kPlain, ProductRole::kForward}, in, adapter.down);
    return true;
  };
  form.first_adapter = check(inputs.first_adapter, inputs.gate_up, inputs.x);
  form.second_adapter = check(inputs.second_adapter, inputs.down, inputs.x);
  if (form.rank > 0) form.adapter_scale = inputs.adapter_scale;
}

// CHECKs the shapes of all operands but the adapters. Returns the form without them.
ExpertForm FormOf(const Recorder& recorder, const ExpertMlpInputs& inputs) {
  const ValueInfo x = recorder.info(inputs.x), experts = recorder.info(inputs.experts);
  const ValueInfo weights = recorder.info(inputs.weights);
  const Shape gate_up = ShapeOf(recorder.program(), inputs.gate_up);
  const Shape down = ShapeOf(recorder.program(), inputs.down);
  const ExpertForm form = {.ffn = down.rank() == 3 ? down[2] : 0,
                           .gated = inputs.gated,
                           .bias = inputs.gate_up_bias.valid(),
                           .nf4 = inputs.gate_up.in_nf4(),
                           .swiglu_limit = inputs.swiglu_limit};
  CHECK(x.shape.rank() == 2 && experts.shape.rank() == 2 && experts.shape == weights.shape &&
        experts.shape[0] == x.shape[0] && gate_up.rank() == 3 && down.rank() == 3 &&
        down == Shape({gate_up[0], x.shape[1], gate_up[1] / form.up_matrices()}) &&
        gate_up[2] == x.shape[1])
      << "expert_mlp: " << x << " with " << experts << ", " << weights << ", gate_up " << gate_up
      << ", down " << down;
  CHECK(form.nf4 == inputs.down.in_nf4()) << "expert_mlp: weights of one product in NF4";
  CHECK(form.bias == inputs.down_bias.valid()) << "expert_mlp: a bias of one product alone";
  CHECK(form.gated || form.swiglu_limit == 0) << "expert_mlp: a limit without SwiGLU";
  if (form.bias) {
    const Shape first = recorder.info(inputs.gate_up_bias).shape;
    const Shape second = recorder.info(inputs.down_bias).shape;
    CHECK(first == Shape({gate_up[0], gate_up[1]}) && second == Shape({down[0], down[1]}))
        << "expert_mlp: biases " << first << ", " << second << " of " << gate_up << ", " << down;
  }
  return form;
}

// Whether a backward pass goes through the experts, which notes their histories.
bool HasBackward(const Recorder& recorder, const ExpertMlpInputs& inputs) {
  if (!recorder.program().training) return true;  // Rounds as the training does that it stands for.
  const auto differentiable = [&](Value value) {
    return value.valid() && recorder.info(value).differentiable;
  };
  return differentiable(inputs.x) || differentiable(inputs.weights) ||
         differentiable(inputs.gate_up.value) || differentiable(inputs.down.value) ||
         differentiable(inputs.gate_up_bias) || differentiable(inputs.down_bias) ||
         differentiable(inputs.first_adapter.down) || differentiable(inputs.second_adapter.down);
}

ExpertDispatchShape DispatchShapeOf(const Recorder& recorder, const ExpertMlpInputs& inputs) {
  const ValueInfo x = recorder.info(inputs.x);
  const Mesh& mesh = recorder.mesh();
  const AxisSet axes = mesh.expert_axes & mesh.active();
  CHECK((axes - x.varying).empty())
      << "gradients of " << x << " do not vary along " << axes << ", over which it is sent";
  const int64_t ranks = mesh.size(axes), local = recorder.info(inputs.gate_up.value).shape[0];
  ExpertDispatchShape shape{.axes = axes,
                            .ranks = ranks,
                            .rank = mesh.coordinate(axes),
                            .experts = ranks * local,
                            .tokens = x.shape[0],
                            .top_k = recorder.info(inputs.experts).shape[1],
                            .width = x.shape[1]};
  // A token chooses an expert at most once.
  const int64_t most = ranks * shape.tokens * std::min(shape.top_k, local);
  const double rows = std::ceil(recorder.program().expert_rows * double(shape.slots()));
  shape.bound = std::clamp<int64_t>(int64_t(rows), 1, most);
  return shape;
}

}  // namespace

Value ExpertMlp(Recorder& recorder, const ExpertMlpInputs& inputs) {
  ExpertForm form = FormOf(recorder, inputs);
  AddAdapters(recorder, inputs, form);
  if (HasBackward(recorder, inputs)) form.rounding = RoundingOfExperts(recorder);
  CHECK(!form.nf4 || !form.rounding) << "expert_mlp: weights in NF4 beside operands in 8 bits";
  form.kind = form.rounding ? ProductKind::kExperts : ProductKind::kPlain;
  const ExpertDispatchShape shape = DispatchShapeOf(recorder, inputs);
  const ValueInfo x = recorder.info(inputs.x), weights = recorder.info(inputs.weights);
  const int64_t bound = shape.bound;
  const ProductUse forward{form.kind, ProductRole::kForward};
  const DType product = recorder.precision().product(forward).result;
  CheckFormats(recorder, form, forward.role, {inputs.x, inputs.gate_up.value});
  const auto memory = [](const char* name, const Shape& size, DType dtype) {
    return Recorder::Output::Memory(name, size, dtype);
  };
  std::vector<Recorder::Output> outputs = {{.shape = x.shape, .dtype = x.dtype, .name = "experts"},
                                           memory("rows", {bound, shape.width}, x.dtype),
                                           memory("row_weights", {bound}, weights.dtype),
                                           memory("up", {bound, form.up_width()}, product)};
  if (form.first_adapter) outputs.push_back(memory("first_narrow", {bound, form.rank}, x.dtype));
  outputs.push_back(memory("hidden", {bound, form.ffn}, x.dtype));
  outputs.push_back(memory("result", {bound, shape.width}, product));
  if (form.second_adapter) outputs.push_back(memory("second_narrow", {bound, form.rank}, x.dtype));
  if (form.rounding) {
    const ValueInfo gate_up = recorder.info(inputs.gate_up.value);
    const ValueInfo down = recorder.info(inputs.down.value);
    const RoundedShapes rounded_shapes{
        .rows = bound, .first_weight = gate_up.shape, .second_weight = down.shape};
    outputs.push_back(FactorsOfExperts(recorder, *form.rounding, rounded_shapes, kRoundedForward));
    outputs.push_back(memory("rounded_rows", {bound, shape.width}, x.dtype));
    outputs.push_back(memory("rounded_gate_up", gate_up.shape, gate_up.dtype));
    outputs.push_back(memory("rounded_down", down.shape, down.dtype));
  }
  outputs = Joined(Joined(std::move(outputs), ExpertDispatch::Kept(shape)),
                   ExpertDispatch::Memory(shape, recorder.precision()));
  std::vector<Value> values = {inputs.x, inputs.experts, inputs.weights, inputs.gate_up.value,
                               inputs.down.value};
  if (form.nf4) {
    values.insert(values.end(), {inputs.gate_up.scales, inputs.gate_up.groups, inputs.down.scales,
                                 inputs.down.groups});
  }
  if (form.bias) values.insert(values.end(), {inputs.gate_up_bias, inputs.down_bias});
  for (const ExpertAdapter& adapter : {inputs.first_adapter, inputs.second_adapter}) {
    if (adapter.valid()) values.insert(values.end(), {adapter.down, adapter.up});
  }
  if (form.rounding) {
    const std::vector<Value> histories = HistoriesOfExperts(
        recorder, *form.rounding, inputs.gate_up.value, inputs.down.value, kRoundedForward);
    values.insert(values.end(), histories.begin(), histories.end());
  }
  return recorder.Emit(std::make_shared<ExpertMlpOp>(shape, form), std::move(values), outputs)[0];
}

}  // namespace trainyard::ops
