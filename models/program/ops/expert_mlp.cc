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

#include "kernels/grouped_bias.h"
#include "kernels/scaled_squared_relu.h"
#include "kernels/scaled_swiglu.h"
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

// Inputs: dy, x, weights, gate_up, down; then the kept values rows, row_weights, up, which are
// overwritten; then the biases of gate_up and down, if any; then what the dispatch keeps. Outputs:
// dx, dweights, and the gradients of gate_up and down if trainable; then memory for the gradients
// of rows and of the values between the products; then the gradients of the biases, if any; then
// the dispatch's memory.
class ExpertMlpBackwardOp final : public ExpertMlpBase {
 public:
  struct Trainable {
    bool gate_up = true;
    bool down = true;
    int count() const { return int(gate_up) + int(down); }
  };
  ExpertMlpBackwardOp(const ExpertDispatchShape& shape, const ExpertForm& form,
                      const Trainable& trainable)
      : ExpertMlpBase(shape, form), trainable_(trainable) {}
  absl::string_view name() const override { return "expert_mlp_backward"; }
  bool Overwrites(int input) const override { return input >= 5 && input <= 7; }
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
    const auto dispatch = DispatchOf(binder, inputs.last(num_kept()),
                                     outputs.subspan(size_t(own() + (form_.bias ? 4 : 2))));
    const Arrival arrival{.x = in(1),
                          .rows = in(5),
                          .weights = in(2),
                          .row_weights = in(6),
                          .gate_up = in(3),
                          .up = in(7),
                          .gate_up_bias = form_.bias ? in(8) : Tensor{}};
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
  // The index of the first output that is memory.
  int own() const { return 2 + trainable_.count(); }
  // Backward for rows that have arrived.
  std::vector<Call> Round(const Binder& binder, const Instance& instance, ExpertDispatch& dispatch,
                          bool first) const {
    const auto in = [&](int i) { return binder.tensor(instance.inputs[size_t(i)]); };
    const auto out = [&](int i) { return binder.tensor(instance.outputs[size_t(i)]); };
    const auto write = [&](int i) {
      return first ? binder.write(instance.outputs[size_t(i)]) : Write::kAdd;
    };
    const Tensor dy = in(0), gate_up = in(3), down = in(4), rows = in(5), up = in(7);
    const Tensor row_weights = in(6), drows = out(own()), hidden = out(own() + 1);
    const Tensor offsets = dispatch.offsets(), count = dispatch.received();
    const Write add = first ? Write::kOverwrite : Write::kAdd;
    std::vector<Call> calls;
    const auto then = [&](auto args) { calls.push_back(binder.Kernel(args)); };
    const auto multiply = [&](const Product& p) { calls.push_back(BindProduct(binder, p)); };
    calls.push_back(dispatch.ToExperts(binder, Row::kToken, dy, drows));
    if (trainable_.down) {
      const int gradient = 2 + int(trainable_.gate_up);
      calls.push_back(Activate(binder, up, row_weights, count, hidden));
      multiply({.role = ProductRole::kWeightGradient,
                .a = drows,
                .b = hidden,
                .offsets = offsets,
                .out = out(gradient),
                .write = write(gradient)});
    }
    if (form_.bias) {
      then(GroupedBiasGradientArgs{.dy = drows,
                                   .w = row_weights,
                                   .offsets = offsets,
                                   .dbias = out(own() + 3),
                                   .write = write(own() + 3)});
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
          .dy = drows, .bias = in(9), .offsets = offsets, .dw = row_weights});
      then(GroupedBiasGradientArgs{
          .dy = up, .offsets = offsets, .dbias = out(own() + 2), .write = write(own() + 2)});
    }
    if (trainable_.gate_up) {
      multiply({.role = ProductRole::kWeightGradient,
                .a = up,
                .b = rows,
                .offsets = offsets,
                .out = out(2),
                .write = write(2)});
    }
    multiply({.role = ProductRole::kInputGradient,
              .a = up,
              .b = gate_up,
              .offsets = offsets,
              .out = drows});
    calls.push_back(dispatch.FromExperts(binder, Row::kToken, drows, out(0), add));
    calls.push_back(dispatch.FromExperts(binder, Row::kSlot, row_weights, out(1), add));
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
//
// Inputs: x, experts, weights, gate_up, and its bias if any. Outputs: rows, row_weights, up; then
// what the dispatch keeps, and its memory.
class ExpertMlpArrivalOp final : public ExpertMlpBase {
 public:
  using ExpertMlpBase::ExpertMlpBase;
  absl::string_view name() const override { return "expert_mlp_arrival"; }
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
    const auto dispatch = DispatchOf(binder, instance, 3);
    const Arrival arrival{.x = in(0),
                          .rows = out(0),
                          .weights = in(2),
                          .row_weights = out(1),
                          .gate_up = in(3),
                          .up = out(2),
                          .gate_up_bias = form_.bias ? in(4) : Tensor{}};
    Call sort = dispatch->Sort(binder, in(1));
    return
        [dispatch, sort = std::move(sort), arrive = arrival.Calls(binder, *dispatch)](Exec& exec) {
          sort(exec);
          if (dispatch->Load(exec) > 1) return;
          dispatch->Begin(exec, 0);
          RunAll(arrive, exec);
        };
  }
};

// Inputs: x, experts, weights, gate_up, down, and the biases of the last two if any. Outputs: y;
// then the values that backward needs: rows, row_weights, up; then memory for the values between
// the products and for the experts' outputs; then what the dispatch keeps, and its memory.
class ExpertMlpOp final : public ExpertMlpBase {
 public:
  static constexpr int kFirstOfDispatch = 6;  // The first of the dispatch's outputs.

  using ExpertMlpBase::ExpertMlpBase;
  absl::string_view name() const override { return "expert_mlp"; }
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
    if (read[0]) return instance;
    Instance arrival = instance;
    arrival.op = std::make_shared<ExpertMlpArrivalOp>(shape_, form_);
    if (form_.bias) arrival.inputs.pop_back();  // The bias of `down`.
    arrival.inputs.erase(arrival.inputs.begin() + 4);
    const auto outputs = arrival.outputs.begin();
    arrival.outputs.erase(outputs + 4, outputs + 6);
    arrival.outputs.erase(outputs);
    return arrival;
  }
  Call Bind(const Binder& binder, const Instance& instance) const override {
    const auto in = [&](int i) { return binder.tensor(instance.inputs[size_t(i)]); };
    const auto out = [&](int i) { return binder.tensor(instance.outputs[size_t(i)]); };
    const auto dispatch = DispatchOf(binder, instance, kFirstOfDispatch);
    const Tensor row_weights = out(2), up = out(3), hidden = out(4), result = out(5);
    const Arrival arrival{.x = in(0),
                          .rows = out(1),
                          .weights = in(2),
                          .row_weights = row_weights,
                          .gate_up = in(3),
                          .up = up,
                          .gate_up_bias = form_.bias ? in(5) : Tensor{}};
    std::vector<Call> round = arrival.Calls(binder, *dispatch);
    round.push_back(Activate(binder, up, row_weights, dispatch->received(), hidden));
    Product product{.role = ProductRole::kForward,
                    .a = hidden,
                    .b = in(4),
                    .offsets = dispatch->offsets(),
                    .out = result};
    if (form_.bias) product.epilogue = {.bias = in(6), .bias_factor = row_weights};
    round.push_back(BindProduct(binder, product));
    Call sort = dispatch->Sort(binder, in(1));
    Call first = dispatch->FromExperts(binder, Row::kToken, result, out(0), Write::kOverwrite);
    Call later = dispatch->FromExperts(binder, Row::kToken, result, out(0), Write::kAdd);
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
    const ValueInfo x = recorder.info(in(0)), weights = recorder.info(in(2));
    FormatOf(recorder, {ProductKind::kExperts, ProductRole::kInputGradient}, output_grads[0],
             in(3));
    FormatOf(recorder, {ProductKind::kExperts, ProductRole::kWeightGradient}, output_grads[0],
             in(0));
    std::vector<Value> inputs = {output_grads[0], in(0),   in(2),   in(3),
                                 in(4),           kept(1), kept(2), kept(3)};
    std::vector<Recorder::Output> outputs = {
        {.shape = x.shape, .dtype = x.dtype, .name = "dx"},
        {.shape = weights.shape, .dtype = weights.dtype, .name = "dweights"}};
    for (const int i : {3, 4}) {
      if (recorder.IsTrainable(in(i))) {
        outputs.push_back(Recorder::Output::Into(recorder.Gradient(in(i))));
      }
    }
    outputs.push_back(Recorder::Output::Memory("drows", {shape_.bound, shape_.width}, x.dtype));
    outputs.push_back(Recorder::Output::Memory("dhidden", {shape_.bound, form_.ffn}, x.dtype));
    if (form_.bias) {
      for (const int i : {5, 6}) {
        inputs.push_back(in(i));
        outputs.push_back(recorder.GradientOutput(in(i)));
      }
    }
    for (size_t i = 0; i < num_kept(); ++i) inputs.push_back(kept(kFirstOfDispatch + int(i)));
    const ExpertMlpBackwardOp::Trainable trainable{.gate_up = recorder.IsTrainable(in(3)),
                                                   .down = recorder.IsTrainable(in(4))};
    const std::vector<Value> grads = recorder.Emit(
        std::make_shared<ExpertMlpBackwardOp>(shape_, form_, trainable), std::move(inputs),
        Joined(outputs, ExpertDispatch::Memory(shape_, recorder.precision())));
    std::vector<Value> result(instance.inputs.size());
    result[0] = grads[0];
    result[2] = grads[1];
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
