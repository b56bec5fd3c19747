// The experts of a layer. Every token's row is sent to the experts that the token chose, wherever
// they are, and the sum of their outputs comes back.
//
// A token's weight for an expert is multiplied in between the expert's two products. So the
// gradient of the weight is found on the rank of the expert, and the expert's output need not be
// kept. The values that backward needs are kept for one round. If there were more rounds, backward
// sends the rows again.
#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "kernels/elementwise/scaled_squared_relu.h"
#include "kernels/elementwise/scaled_swiglu.h"
#include "kernels/experts/grouped_bias.h"
#include "models/program/binder.h"
#include "models/program/ops/expert_dispatch.h"
#include "models/program/ops/ops.h"
#include "models/program/product.h"

namespace trainyard::ops {
namespace {

using Row = ExpertDispatch::Row;

// The sizes and options of an expert.
struct ExpertForm {
  int64_t ffn = 0;
  bool gated = true;  // SwiGLU; otherwise squared ReLU.
  bool bias = false;  // Both products have a bias.
  double swiglu_limit = 0;

  int up_matrices() const { return gated ? 2 : 1; }
  int matrices() const { return up_matrices() + 1; }
};

// The base of both directions. Kept from forward to backward: on the experts' rank the rows, their
// weights, and each row's gate and up, and the sorted slots (ExpertDispatch::Kept).
class ExpertMlpBase : public Op {
 public:
  ExpertMlpBase(const ExpertDispatchShape& shape, const ExpertForm& form)
      : shape_(shape), form_(form) {}
  AxisSet group() const override { return shape_.axes; }
  // Otherwise the host reads the number of rows.
  bool is_capturable() const override { return shape_.is_sorting(); }
  std::string attributes() const override {
    std::ostringstream out;
    out << "experts=" << shape_.experts << " top_k=" << shape_.top_k << " axes=" << shape_.axes
        << " rows=" << shape_.bound;
    if (!form_.gated) out << " squared_relu";
    if (form_.bias) out << " bias";
    if (form_.swiglu_limit > 0) out << " swiglu_limit=" << form_.swiglu_limit;
    return out.str();
  }

 protected:
  // The communication between tokens and experts: `rows` rows and one number for each slot.
  Communication Travel(const Precision& precision, int64_t rows) const {
    const auto sent = [&](int64_t elements, DType dtype) {
      return SentBytes(CollectiveOp::kAllToAll, elements * int64_t(SizeOf(dtype)),
                       int(shape_.ranks));
    };
    return {.op = CollectiveOp::kAllToAll,
            .calls = rows + 1,
            .bytes = rows * sent(shape_.slots() * shape_.width, precision.activation) +
                     sent(shape_.slots(), precision.statistic),
            .exact = false};
  }
  // The communication of the counts: how many slots each rank has for each expert.
  Communication Counts() const {
    const int64_t bytes = shape_.ranks * shape_.experts * int64_t(SizeOf(DType::kI32));
    return CallsOf(CollectiveOp::kAllGather, 1, bytes, int(shape_.ranks));
  }
  // FLOPs of the products of all slots with so many of an expert's matrices.
  double FlopsOf(int matrices) const {
    return ProductFlops(shape_.slots(), shape_.width * form_.ffn) * matrices;
  }

  size_t num_kept() const { return ExpertDispatch::Kept(shape_).size(); }
  size_t num_memory() const { return ExpertDispatch::Memory(shape_, Precision::F32()).size(); }

  std::shared_ptr<ExpertDispatch> DispatchOf(const Binder& binder, std::span<const Value> kept,
                                             std::span<const Value> memory) const {
    const auto tensors = [&](std::span<const Value> values) {
      std::vector<Tensor> bound;
      for (const Value value : values) bound.push_back(binder.tensor(value));
      return bound;
    };
    return std::make_shared<ExpertDispatch>(binder, shape_, tensors(kept), tensors(memory));
  }
  // Of a forward: its outputs from `first` on are the dispatch's.
  std::shared_ptr<ExpertDispatch> DispatchOf(const Binder& binder, const Instance& instance,
                                             size_t first) const {
    const std::span<const Value> values = std::span(instance.outputs).subspan(first);
    return DispatchOf(binder, values.first(num_kept()), values.subspan(num_kept()));
  }

  // y is what the second product takes.
  Call Activate(const Binder& binder, Tensor x, Tensor w, Tensor count, Tensor y) const {
    if (!form_.gated) {
      return binder.Kernel(ScaledSquaredReluForwardArgs{.x = x, .w = w, .count = count, .y = y});
    }
    return binder.Kernel(ScaledSwiGluForwardArgs{
        .x = x, .w = w, .count = count, .y = y, .limit = form_.swiglu_limit});
  }
  // Replaces x and w by their gradients.
  Call ActivateBackward(const Binder& binder, Tensor dy, Tensor x, Tensor w, Tensor count) const {
    if (!form_.gated) {
      return binder.Kernel(ScaledSquaredReluBackwardArgs{
          .dy = dy, .x = x, .w = w, .count = count, .dx = x, .dw = w});
    }
    return binder.Kernel(ScaledSwiGluBackwardArgs{
        .dy = dy, .x = x, .w = w, .count = count, .dx = x, .dw = w, .limit = form_.swiglu_limit});
  }

  const ExpertDispatchShape shape_;
  const ExpertForm form_;
};

// Sends rows and weights to the experts, and computes the first product.
struct Arrival {
  Tensor x, rows, weights, row_weights, gate_up, up;
  Tensor gate_up_bias = {};  // Without data: none.

  std::vector<Call> Calls(const Binder& binder, ExpertDispatch& dispatch) const {
    return {dispatch.ToExperts(binder, Row::kToken, x, rows),
            dispatch.ToExperts(binder, Row::kSlot, weights, row_weights),
            BindProduct(binder, {.role = ProductRole::kForward,
                                 .a = rows,
                                 .b = gate_up,
                                 .offsets = dispatch.offsets(),
                                 .out = up,
                                 .epilogue = {.bias = gate_up_bias}})};
  }
};

void RunAll(const std::vector<Call>& calls, Exec& exec) {
  for (const Call& call : calls) call(exec);
}

class ExpertMlpBackwardOp final : public ExpertMlpBase {
 public:
  // Rows, their weights and up are kept by forward, and overwritten. What the dispatch keeps comes
  // last.
  enum Input {
    kDy,
    kX,
    kWeights,
    kGateUp,
    kDown,
    kRows,
    kRowWeights,
    kUp,
    kGateUpBias,
    kDownBias,
    kInputs
  };
  // An instance has those of which Has() is true. The gradients of rows and of the values between
  // the products are memory. The dispatch's memory comes last.
  enum Output {
    kDx,
    kDweights,
    kDgateUp,
    kDdown,
    kDrows,
    kDhidden,
    kDgateUpBias,
    kDdownBias,
    kDispatch
  };
  struct Trainable {
    bool gate_up = true;
    bool down = true;
  };
  ExpertMlpBackwardOp(const ExpertDispatchShape& shape, const ExpertForm& form,
                      const Trainable& trainable)
      : ExpertMlpBase(shape, form), trainable_(trainable) {}
  absl::string_view name() const override { return "expert_mlp_backward"; }
  bool Has(Output output) const {
    switch (output) {
      case kDgateUp:
        return trainable_.gate_up;
      case kDdown:
        return trainable_.down;
      case kDgateUpBias:
      case kDdownBias:
        return form_.bias;
      default:
        return true;
    }
  }
  // The index of an output, or of the next one if it is missing.
  size_t At(Output output) const {
    size_t at = 0;
    for (int before = 0; before < output; ++before) at += size_t(Has(Output(before)));
    return at;
  }
  std::optional<OperandCounts> operand_counts() const override {
    return OperandCounts{.inputs = (form_.bias ? kInputs : kGateUpBias) + num_kept(),
                         .outputs = At(kDispatch) + num_memory()};
  }
  bool Overwrites(int input) const override {
    return input == kRows || input == kRowWeights || input == kUp;
  }
  // The forward that further rounds repeat is not counted.
  Cost CostOf(const Program& program, const Instance& instance) const override {
    Cost cost = Op::CostOf(program, instance);
    cost.flops =
        FlopsOf(form_.matrices()) +
        FlopsOf((trainable_.gate_up ? form_.up_matrices() : 0) + (trainable_.down ? 1 : 0));
    return cost;
  }
  std::vector<Communication> CommunicationOf(const Program& program,
                                             const Instance&) const override {
    return {Travel(program.precision, 2)};
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const auto in = [&](int i) { return binder.tensor(instance.inputs[size_t(i)]); };
    const std::span<const Value> inputs(instance.inputs), outputs(instance.outputs);
    const auto dispatch =
        DispatchOf(binder, inputs.last(num_kept()), outputs.subspan(At(kDispatch)));
    const Arrival arrival{.x = in(kX),
                          .rows = in(kRows),
                          .weights = in(kWeights),
                          .row_weights = in(kRowWeights),
                          .gate_up = in(kGateUp),
                          .up = in(kUp),
                          .gate_up_bias = form_.bias ? in(kGateUpBias) : Tensor{}};
    std::vector<Call> arrive = arrival.Calls(binder, *dispatch);
    std::vector<Call> first = Round(binder, instance, *dispatch, true);
    std::vector<Call> later = Round(binder, instance, *dispatch, false);
    return [dispatch, arrive = std::move(arrive), first = std::move(first),
            later = std::move(later)](Exec& exec) {
      const int64_t rounds = dispatch->Load(exec);
      for (int64_t round = 0; round < rounds; ++round) {
        dispatch->Begin(exec, round);
        if (rounds > 1) RunAll(arrive, exec);
        RunAll(round == 0 ? first : later, exec);
      }
    };
  }

 private:
  // Backward for rows that have arrived.
  std::vector<Call> Round(const Binder& binder, const Instance& instance, ExpertDispatch& dispatch,
                          bool first) const {
    const auto in = [&](int i) { return binder.tensor(instance.inputs[size_t(i)]); };
    const auto out = [&](Output output) { return binder.tensor(instance.outputs[At(output)]); };
    const auto write = [&](Output output) {
      return first ? binder.write(instance.outputs[At(output)]) : Write::kAdd;
    };
    const Tensor dy = in(kDy), gate_up = in(kGateUp), down = in(kDown), rows = in(kRows);
    const Tensor up = in(kUp), row_weights = in(kRowWeights);
    const Tensor drows = out(kDrows), hidden = out(kDhidden);
    const Tensor offsets = dispatch.offsets(), count = dispatch.received();
    const Write add = first ? Write::kOverwrite : Write::kAdd;
    std::vector<Call> calls;
    const auto then = [&](auto args) { calls.push_back(binder.Kernel(args)); };
    const auto multiply = [&](const Product& p) { calls.push_back(BindProduct(binder, p)); };
    calls.push_back(dispatch.ToExperts(binder, Row::kToken, dy, drows));
    if (trainable_.down) {
      calls.push_back(Activate(binder, up, row_weights, count, hidden));
      multiply({.role = ProductRole::kWeightGradient,
                .a = drows,
                .b = hidden,
                .offsets = offsets,
                .out = out(kDdown),
                .write = write(kDdown)});
    }
    if (form_.bias) {
      then(GroupedBiasGradientArgs{.dy = drows,
                                   .w = row_weights,
                                   .offsets = offsets,
                                   .dbias = out(kDdownBias),
                                   .write = write(kDdownBias)});
    }
    multiply({.role = ProductRole::kInputGradient,
              .a = drows,
              .b = down,
              .offsets = offsets,
              .out = hidden});
    calls.push_back(ActivateBackward(binder, hidden, up, row_weights, count));
    if (form_.bias) {
      // The weight multiplies the second bias, too, so its gradient has a term with that bias.
      then(GroupedBiasFactorGradientArgs{
          .dy = drows, .bias = in(kDownBias), .offsets = offsets, .dw = row_weights});
      then(GroupedBiasGradientArgs{
          .dy = up, .offsets = offsets, .dbias = out(kDgateUpBias), .write = write(kDgateUpBias)});
    }
    if (trainable_.gate_up) {
      multiply({.role = ProductRole::kWeightGradient,
                .a = up,
                .b = rows,
                .offsets = offsets,
                .out = out(kDgateUp),
                .write = write(kDgateUp)});
    }
    multiply({.role = ProductRole::kInputGradient,
              .a = up,
              .b = gate_up,
              .offsets = offsets,
              .out = drows});
    calls.push_back(dispatch.FromExperts(binder, Row::kToken, drows, out(kDx), add));
    calls.push_back(dispatch.FromExperts(binder, Row::kSlot, row_weights, out(kDweights), add));
    return calls;
  }

  const Trainable trainable_;
};

std::vector<Recorder::Output> Joined(std::vector<Recorder::Output> a,
                                     std::vector<Recorder::Output> b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Computes again what backward needs, if the layer is recomputed: rows are sent to their experts
// and go through the first product, and nothing comes back. Backward needs nothing from further
// rounds.
class ExpertMlpArrivalOp final : public ExpertMlpBase {
 public:
  enum Input { kX, kExperts, kWeights, kGateUp, kGateUpBias, kInputs };
  enum Output { kRows, kRowWeights, kUp, kDispatch };  // What the dispatch keeps, and its memory.
  using ExpertMlpBase::ExpertMlpBase;
  absl::string_view name() const override { return "expert_mlp_arrival"; }
  std::optional<OperandCounts> operand_counts() const override {
    return OperandCounts{.inputs = form_.bias ? kInputs : kGateUpBias,
                         .outputs = kDispatch + num_kept() + num_memory()};
  }
  Cost CostOf(const Program& program, const Instance& instance) const override {
    Cost cost = Op::CostOf(program, instance);
    cost.flops = FlopsOf(form_.up_matrices());
    return cost;
  }
  std::vector<Communication> CommunicationOf(const Program& program,
                                             const Instance&) const override {
    return {Counts(), Travel(program.precision, 1)};
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const auto in = [&](int i) { return binder.tensor(instance.inputs[size_t(i)]); };
    const auto out = [&](int i) { return binder.tensor(instance.outputs[size_t(i)]); };
    const auto dispatch = DispatchOf(binder, instance, kDispatch);
    const Arrival arrival{.x = in(kX),
                          .rows = out(kRows),
                          .weights = in(kWeights),
                          .row_weights = out(kRowWeights),
                          .gate_up = in(kGateUp),
                          .up = out(kUp),
                          .gate_up_bias = form_.bias ? in(kGateUpBias) : Tensor{}};
    Call sort = dispatch->Sort(binder, in(kExperts));
    return
        [dispatch, sort = std::move(sort), arrive = arrival.Calls(binder, *dispatch)](Exec& exec) {
          sort(exec);
          if (dispatch->Load(exec) > 1) return;
          dispatch->Begin(exec, 0);
          RunAll(arrive, exec);
        };
  }
};

class ExpertMlpOp final : public ExpertMlpBase {
 public:
  enum Input { kX, kExperts, kWeights, kGateUp, kDown, kGateUpBias, kDownBias, kInputs };
  // Backward needs rows, their weights and up. The values between the products and the experts'
  // results are memory. What the dispatch keeps, and its memory, come last.
  enum Output { kY, kRows, kRowWeights, kUp, kHidden, kResult, kDispatch };

  using ExpertMlpBase::ExpertMlpBase;
  absl::string_view name() const override { return "expert_mlp"; }
  std::optional<OperandCounts> operand_counts() const override {
    return OperandCounts{.inputs = form_.bias ? kInputs : kGateUpBias,
                         .outputs = kDispatch + num_kept() + num_memory()};
  }
  Cost CostOf(const Program& program, const Instance& instance) const override {
    Cost cost = Op::CostOf(program, instance);
    cost.flops = FlopsOf(form_.matrices());
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
    if (form_.bias) arrival.inputs.erase(arrival.inputs.begin() + kDownBias);
    arrival.inputs.erase(arrival.inputs.begin() + kDown);
    const auto outputs = arrival.outputs.begin();
    arrival.outputs.erase(outputs + kHidden, outputs + kDispatch);
    arrival.outputs.erase(outputs + kY);
    return arrival;
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const auto in = [&](int i) { return binder.tensor(instance.inputs[size_t(i)]); };
    const auto out = [&](int i) { return binder.tensor(instance.outputs[size_t(i)]); };
    const auto dispatch = DispatchOf(binder, instance, kDispatch);
    const Tensor row_weights = out(kRowWeights), up = out(kUp);
    const Tensor hidden = out(kHidden), result = out(kResult);
    const Arrival arrival{.x = in(kX),
                          .rows = out(kRows),
                          .weights = in(kWeights),
                          .row_weights = row_weights,
                          .gate_up = in(kGateUp),
                          .up = up,
                          .gate_up_bias = form_.bias ? in(kGateUpBias) : Tensor{}};
    std::vector<Call> round = arrival.Calls(binder, *dispatch);
    round.push_back(Activate(binder, up, row_weights, dispatch->received(), hidden));
    Product product{.role = ProductRole::kForward,
                    .a = hidden,
                    .b = in(kDown),
                    .offsets = dispatch->offsets(),
                    .out = result};
    if (form_.bias) product.epilogue = {.bias = in(kDownBias), .bias_factor = row_weights};
    round.push_back(BindProduct(binder, product));
    Call sort = dispatch->Sort(binder, in(kExperts));
    Call first = dispatch->FromExperts(binder, Row::kToken, result, out(kY), Write::kOverwrite);
    Call later = dispatch->FromExperts(binder, Row::kToken, result, out(kY), Write::kAdd);
    return [dispatch, sort = std::move(sort), round = std::move(round), first = std::move(first),
            later = std::move(later)](Exec& exec) {
      sort(exec);
      const int64_t rounds = dispatch->Load(exec);
      for (int64_t i = 0; i < rounds; ++i) {
        dispatch->Begin(exec, i);
        RunAll(round, exec);
        (i == 0 ? first : later)(exec);
      }
    };
  }
  std::vector<Value> Backward(Recorder& recorder, const Instance& instance,
                              std::span<const Value> output_grads) const override {
    const auto in = [&](int i) { return instance.inputs[size_t(i)]; };
    const auto kept = [&](int i) { return instance.outputs[size_t(i)]; };
    const Value dy = output_grads[kY];
    const ValueInfo x = recorder.info(in(kX)), weights = recorder.info(in(kWeights));
    FormatOf(recorder, {ProductKind::kExperts, ProductRole::kInputGradient}, dy, in(kGateUp));
    FormatOf(recorder, {ProductKind::kExperts, ProductRole::kWeightGradient}, dy, in(kX));
    std::vector<Value> inputs = {dy,        in(kX),      in(kWeights),      in(kGateUp),
                                 in(kDown), kept(kRows), kept(kRowWeights), kept(kUp)};
    std::vector<Recorder::Output> outputs = {
        {.shape = x.shape, .dtype = x.dtype, .name = "dx"},
        {.shape = weights.shape, .dtype = weights.dtype, .name = "dweights"}};
    for (const int i : {kGateUp, kDown}) {
      if (recorder.IsTrainable(in(i))) {
        outputs.push_back(Recorder::Output::Into(recorder.Gradient(in(i))));
      }
    }
    outputs.push_back(Recorder::Output::Memory("drows", {shape_.bound, shape_.width}, x.dtype));
    outputs.push_back(Recorder::Output::Memory("dhidden", {shape_.bound, form_.ffn}, x.dtype));
    if (form_.bias) {
      for (const int i : {kGateUpBias, kDownBias}) {
        inputs.push_back(in(i));
        outputs.push_back(recorder.GradientOutput(in(i)));
      }
    }
    for (size_t i = 0; i < num_kept(); ++i) inputs.push_back(kept(kDispatch + int(i)));
    const ExpertMlpBackwardOp::Trainable trainable{.gate_up = recorder.IsTrainable(in(kGateUp)),
                                                   .down = recorder.IsTrainable(in(kDown))};
    const std::vector<Value> grads = recorder.Emit(
        std::make_shared<ExpertMlpBackwardOp>(shape_, form_, trainable), std::move(inputs),
        Joined(outputs, ExpertDispatch::Memory(shape_, recorder.precision())));
    std::vector<Value> result(instance.inputs.size());
    result[kX] = grads[ExpertMlpBackwardOp::kDx];
    result[kWeights] = grads[ExpertMlpBackwardOp::kDweights];
    return result;
  }
};

}  // namespace

Value ExpertMlp(Recorder& recorder, const ExpertMlpInputs& inputs) {
  const ValueInfo x = recorder.info(inputs.x), experts = recorder.info(inputs.experts);
  const ValueInfo weights = recorder.info(inputs.weights);
  const Shape gate_up = recorder.info(inputs.gate_up).shape;
  const Shape down = recorder.info(inputs.down).shape;
  const Mesh& mesh = recorder.mesh();
  const AxisSet axes = mesh.expert_axes & mesh.active();
  CHECK((axes - x.varying).empty())
      << "gradients of " << x << " do not vary along " << axes << ", over which it is sent";
  const int64_t ranks = mesh.size(axes);
  ExpertForm form = {.gated = inputs.gated,
                     .bias = inputs.gate_up_bias.valid(),
                     .swiglu_limit = inputs.swiglu_limit};
  CHECK(x.shape.rank() == 2 && experts.shape.rank() == 2 && experts.shape == weights.shape &&
        experts.shape[0] == x.shape[0] && gate_up.rank() == 3 && down.rank() == 3 &&
        down == Shape({gate_up[0], x.shape[1], gate_up[1] / form.up_matrices()}) &&
        gate_up[2] == x.shape[1])
      << "expert_mlp: " << x << " with " << experts << ", " << weights << ", gate_up " << gate_up
      << ", down " << down;
  CHECK(form.bias == inputs.down_bias.valid()) << "expert_mlp: a bias of one product alone";
  CHECK(form.gated || form.swiglu_limit == 0) << "expert_mlp: a limit without SwiGLU";
  if (form.bias) {
    const Shape first = recorder.info(inputs.gate_up_bias).shape;
    const Shape second = recorder.info(inputs.down_bias).shape;
    CHECK(first == Shape({gate_up[0], gate_up[1]}) && second == Shape({down[0], down[1]}))
        << "expert_mlp: biases " << first << ", " << second << " of " << gate_up << ", " << down;
  }
  ExpertDispatchShape shape{.axes = axes,
                            .ranks = ranks,
                            .rank = mesh.coordinate(axes),
                            .experts = ranks * gate_up[0],
                            .tokens = x.shape[0],
                            .top_k = experts.shape[1],
                            .width = x.shape[1]};
  // A token chooses an expert at most once.
  const int64_t most = ranks * shape.tokens * std::min(shape.top_k, gate_up[0]);
  const double rows = std::ceil(recorder.program().expert_rows * double(shape.slots()));
  shape.bound = std::clamp<int64_t>(int64_t(rows), 1, most);

  form.ffn = down[2];
  const int64_t bound = shape.bound;
  const ProductUse forward{ProductKind::kExperts, ProductRole::kForward};
  const DType product = FormatOf(recorder, forward, inputs.x, inputs.gate_up).result;
  const std::vector<Recorder::Output> own =
      Joined({{.shape = x.shape, .dtype = x.dtype, .name = "experts"},
              Recorder::Output::Memory("rows", {bound, shape.width}, x.dtype),
              Recorder::Output::Memory("row_weights", {bound}, weights.dtype),
              Recorder::Output::Memory("up", {bound, gate_up[1]}, product),
              Recorder::Output::Memory("hidden", {bound, form.ffn}, x.dtype),
              Recorder::Output::Memory("result", {bound, shape.width}, product)},
             ExpertDispatch::Kept(shape));
  const std::vector<Recorder::Output> outputs =
      Joined(own, ExpertDispatch::Memory(shape, recorder.precision()));
  std::vector<Value> values = {inputs.x, inputs.experts, inputs.weights, inputs.gate_up,
                               inputs.down};
  if (form.bias) values.insert(values.end(), {inputs.gate_up_bias, inputs.down_bias});
  return recorder.Emit(std::make_shared<ExpertMlpOp>(shape, form), std::move(values), outputs)[0];
}

}  // namespace trainyard::ops
