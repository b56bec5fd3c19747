#include "models/program/ops/expert_mlp_backward.h"

#include <utility>

#include "kernels/experts/grouped_bias.h"
#include "models/program/product.h"

namespace trainyard::ops {

using Row = ExpertDispatch::Row;

// An instance's operands, and whether its first round is bound, which overwrites gradients if the
// instance does. Later rounds add.
struct ExpertMlpBackwardOp::Operands {
  const ExpertMlpBackwardOp& op;
  const Binder& binder;
  const Instance& instance;
  bool first_round = true;
  ScaledOperand gate_up = {}, down = {};  // As products take them.

  Tensor in(Input input) const { return binder.tensor(instance.inputs[op.At(input)]); }
  // Without data if the instance has no such input.
  Tensor optional(Input input) const { return op.Has(input) ? in(input) : Tensor{}; }
  Tensor out(Output output) const { return binder.tensor(instance.outputs[op.At(output)]); }
  Write write(Output output) const {
    return first_round ? binder.write(instance.outputs[op.At(output)]) : Write::kAdd;
  }
  // `notes`: what is rounded is noted in the gradients of the histories.
  ExpertRounder Rounder(bool notes) const {
    const std::optional<ExpertRounding>& rounding = op.form_.rounding;
    ExpertRounder rounder(binder, rounding, rounding ? out(kFactors) : Tensor{});
    for (int i = 0; op.form_.has_histories() && i < kRoundedBackward; ++i) {
      rounder.set_history(Rounded(i), in(Input(kHistory + i)));
      const auto gradient = Output(kDhistory + i);
      if (notes) rounder.Note(Rounded(i), out(gradient), write(gradient));
    }
    return rounder;
  }
  // Memory for what is rounded. Without data if nothing is.
  Tensor rounded(Output output) const { return op.form_.rounding ? out(output) : Tensor{}; }
};

bool ExpertMlpBackwardOp::Has(Input input) const {
  switch (input) {
    case kGateUpScales:
    case kGateUpGroups:
    case kDownScales:
    case kDownGroups:
      return form_.nf4;
    case kGateUpBias:
    case kDownBias:
      return form_.bias;
    case kFirstDown:
    case kFirstUp:
    case kFirstNarrow:
      return form_.first_adapter;
    case kSecondDown:
    case kSecondUp:
      return form_.second_adapter;
    default:
      return input < kHistory || form_.has_histories();
  }
}

bool ExpertMlpBackwardOp::Has(Output output) const {
  switch (output) {
    case kDgateUp:
      return trainable_.gate_up;
    case kDdown:
      return trainable_.down;
    case kDgateUpBias:
      return form_.bias && trainable_.gate_up_bias;
    case kDdownBias:
      return form_.bias && trainable_.down_bias;
    case kDfirstDown:
    case kDfirstUp:
      return form_.first_adapter;
    case kDsecondDown:
    case kDsecondUp:
    case kSecondNarrow:
      return form_.second_adapter;
    case kFactors:
    case kRoundedRows:
    case kRoundedGateUp:
    case kRoundedDown:
      return form_.rounding.has_value();
    default:
      return output < kDhistory || output >= kDispatch || form_.has_histories();
  }
}

bool ExpertMlpBackwardOp::Overwrites(int input) const {
  const auto is = [&](Input which) { return Has(which) && size_t(input) == At(which); };
  return is(kRows) || is(kRowWeights) || is(kUp) || is(kFirstNarrow);
}

Cost ExpertMlpBackwardOp::CostOf(const Program& program, const Instance& instance) const {
  Cost cost = Op::CostOf(program, instance);
  cost.flops = FlopsOf(form_.matrices()) +
               FlopsOf((trainable_.gate_up ? form_.up_matrices() : 0) + (trainable_.down ? 1 : 0)) +
               2 * FlopsOfAdapters();
  const auto bytes = [&](const std::vector<Value>& values, size_t at) {
    return double(program.info(values[at]).bytes());
  };
  // Histories note what they see, and other recipes look for it. The last two, and hidden values,
  // are rounded where they are, or take the place of another.
  for (const double rounded :
       {bytes(instance.inputs, At(kGateUp)), bytes(instance.inputs, At(kDown)),
        2 * bytes(instance.outputs, At(kDrows)), 2 * bytes(instance.inputs, At(kUp))}) {
    cost.bytes += BytesOfRounding(rounded, true);
  }
  if (form_.rounds_lines()) return cost;  // Only weight gradients read the others.
  for (const double rounded :
       {bytes(instance.inputs, At(kRows)), 2 * bytes(instance.outputs, At(kDhidden))}) {
    cost.bytes += BytesOfRounding(rounded, true);
  }
  return cost;
}

Call ExpertMlpBackwardOp::Bind(const Binder& binder, const Instance& instance) const {
  Operands first_round{*this, binder, instance, true};
  std::vector<Call> prepare;
  const ExpertRounder noting = first_round.Rounder(true), rounder = first_round.Rounder(false);
  if (!form_.rounds_lines()) {
    first_round.gate_up = noting(Rounded::kFirstWeight, first_round.in(kGateUp),
                                 first_round.rounded(kRoundedGateUp), {}, prepare);
  }
  first_round.down = noting.ForInputGradient(Rounded::kSecondWeight, first_round.in(kDown),
                                             first_round.rounded(kRoundedDown), prepare);
  first_round.gate_up.nf4 = Nf4Of(first_round.optional(kGateUpScales),
                                  first_round.optional(kGateUpGroups), form_.up_matrices());
  first_round.down.nf4 =
      Nf4Of(first_round.optional(kDownScales), first_round.optional(kDownGroups), 1);
  const Operands later_rounds{*this,           binder, instance, false, first_round.gate_up,
                              first_round.down};
  const std::span<const Value> inputs(instance.inputs), outputs(instance.outputs);
  const auto dispatch = DispatchOf(binder, inputs.last(num_kept()), outputs.subspan(At(kDispatch)));
  // Lines of the first weight are rounded in each round, by rows for what arrives and by columns
  // for the input gradient.
  std::vector<Call> arrive;
  const ScaledOperand gate_up = form_.rounds_lines()
                                    ? rounder(Rounded::kFirstWeight, first_round.in(kGateUp),
                                              first_round.rounded(kRoundedGateUp), {}, arrive)
                                    : first_round.gate_up;
  const Arrival arrival{.x = first_round.in(kX),
                        .rows = first_round.in(kRows),
                        .weights = first_round.in(kWeights),
                        .row_weights = first_round.in(kRowWeights),
                        .gate_up = gate_up,
                        .up = first_round.in(kUp),
                        .gate_up_bias = first_round.optional(kGateUpBias),
                        .adapter = FirstAdapter(first_round, *dispatch),
                        .rounder = rounder,
                        .rounded_rows = first_round.rounded(kRoundedRows)};
  for (Call& call : arrival.Calls(binder, *dispatch)) arrive.push_back(std::move(call));
  std::vector<Call> first = Round(first_round, *dispatch);
  std::vector<Call> later = Round(later_rounds, *dispatch);
  return [dispatch, prepare = std::move(prepare), arrive = std::move(arrive),
          first = std::move(first), later = std::move(later)](Exec& exec) {
    const int64_t rounds = dispatch->Load(exec);
    RunAll(prepare, exec);
    for (int64_t round = 0; round < rounds; ++round) {
      dispatch->Begin(exec, round);
      if (rounds > 1) RunAll(arrive, exec);
      RunAll(round == 0 ? first : later, exec);
    }
  };
}

BoundAdapter ExpertMlpBackwardOp::FirstAdapter(const Operands& operands,
                                               const ExpertDispatch& dispatch) const {
  return {.down = operands.optional(kFirstDown),
          .up = operands.optional(kFirstUp),
          .narrow = operands.optional(kFirstNarrow),
          .offsets = dispatch.offsets(),
          .scale = form_.adapter_scale};
}

BoundAdapter ExpertMlpBackwardOp::SecondAdapter(const Operands& operands,
                                                const ExpertDispatch& dispatch) const {
  return {.down = operands.optional(kSecondDown),
          .up = operands.optional(kSecondUp),
          .narrow = form_.second_adapter ? operands.out(kSecondNarrow) : Tensor{},
          .offsets = dispatch.offsets(),
          .scale = form_.adapter_scale};
}

std::vector<Call> ExpertMlpBackwardOp::Round(const Operands& operands,
                                             ExpertDispatch& dispatch) const {
  const Binder& binder = operands.binder;
  const Tensor drows = operands.out(kDrows), row_weights = operands.in(kRowWeights);
  const Write add = operands.first_round ? Write::kOverwrite : Write::kAdd;
  std::vector<Call> calls = {dispatch.ToExperts(binder, Row::kToken, operands.in(kDy), drows)};
  SecondProduct(operands, dispatch, calls);
  FirstProduct(operands, dispatch, calls);
  calls.push_back(dispatch.FromExperts(binder, Row::kToken, drows, operands.out(kDx), add));
  calls.push_back(
      dispatch.FromExperts(binder, Row::kSlot, row_weights, operands.out(kDweights), add));
  return calls;
}

// From the gradients of the experts' results, which drows holds, to those of what the first product
// gives and of the rows' weights, which replace these.
void ExpertMlpBackwardOp::SecondProduct(const Operands& operands, ExpertDispatch& dispatch,
                                        std::vector<Call>& calls) const {
  const Binder& binder = operands.binder;
  const auto then = [&](auto args) { calls.push_back(binder.Kernel(args)); };
  const auto multiply = [&](const Product& p) { calls.push_back(BindProduct(binder, p)); };
  const Tensor drows = operands.out(kDrows), hidden = operands.out(kDhidden);
  const Tensor up = operands.in(kUp), row_weights = operands.in(kRowWeights);
  const Tensor offsets = dispatch.offsets(), count = dispatch.received();
  const BoundAdapter adapter = SecondAdapter(operands, dispatch);
  const ExpertRounder rounder = operands.Rounder(true);
  const bool reads_hidden = trainable_.down || form_.has_histories();
  if (reads_hidden || adapter.valid()) {
    calls.push_back(Activate(binder, up, row_weights, count, hidden));
  }
  if (adapter.valid()) {
    adapter.Narrow(binder, hidden, calls);
    adapter.Backward(binder, drows, hidden,
                     {.down = operands.out(kDsecondDown),
                      .up = operands.out(kDsecondUp),
                      .write_down = operands.write(kDsecondDown),
                      .write_up = operands.write(kDsecondUp)},
                     calls);
  }
  if (Has(kDdownBias)) {
    then(GroupedBiasGradientArgs{.dy = drows,
                                 .w = row_weights,
                                 .offsets = offsets,
                                 .dbias = operands.out(kDdownBias),
                                 .write = operands.write(kDdownBias)});
  }
  // The factor's gradient below reads drows, so that what is rounded is not put there.
  const ScaledOperand dy =
      rounder(Rounded::kSecondGradient, drows, operands.rounded(kRoundedRows), offsets, calls);
  const bool lines = form_.rounds_lines();
  const ScaledOperand input = reads_hidden && !lines
                                  ? rounder(Rounded::kSecondInput, hidden, hidden, offsets, calls)
                                  : ScaledOperand{hidden};
  if (trainable_.down) {
    const ScaledOperand of_weight = lines ? ScaledOperand{drows} : dy;
    multiply({.role = ProductRole::kWeightGradient,
              .a = of_weight.values,
              .b = input.values,
              .a_scales = of_weight.scales,
              .b_scales = input.scales,
              .offsets = offsets,
              .out = operands.out(kDdown),
              .write = operands.write(kDdown)});
  }
  multiply({.role = ProductRole::kInputGradient,
            .a = dy.values,
            .b = operands.down.values,
            .a_scales = dy.scales,
            .b_scales = operands.down.scales,
            .offsets = offsets,
            .out = hidden,
            .nf4 = operands.down.nf4});
  if (adapter.valid()) adapter.AddInputGradient(binder, hidden, calls);
  calls.push_back(ActivateBackward(binder, hidden, up, row_weights, count));
  if (form_.bias) {
    // The weight multiplies the second bias, too, so its gradient has a term with that bias.
    then(GroupedBiasFactorGradientArgs{
        .dy = drows, .bias = operands.in(kDownBias), .offsets = offsets, .dw = row_weights});
  }
}

// From there to the gradients of the rows.
void ExpertMlpBackwardOp::FirstProduct(const Operands& operands, ExpertDispatch& dispatch,
                                       std::vector<Call>& calls) const {
  const Binder& binder = operands.binder;
  const Tensor drows = operands.out(kDrows), rows = operands.in(kRows), up = operands.in(kUp);
  const Tensor offsets = dispatch.offsets();
  const BoundAdapter adapter = FirstAdapter(operands, dispatch);
  if (Has(kDgateUpBias)) {
    calls.push_back(binder.Kernel(GroupedBiasGradientArgs{.dy = up,
                                                          .offsets = offsets,
                                                          .dbias = operands.out(kDgateUpBias),
                                                          .write = operands.write(kDgateUpBias)}));
  }
  if (adapter.valid()) {
    adapter.Backward(binder, up, rows,
                     {.down = operands.out(kDfirstDown),
                      .up = operands.out(kDfirstUp),
                      .write_down = operands.write(kDfirstDown),
                      .write_up = operands.write(kDfirstUp)},
                     calls);
  }
  const ExpertRounder rounder = operands.Rounder(true);
  const bool lines = form_.rounds_lines();
  const auto weight_gradient = [&](const ScaledOperand& dy, const ScaledOperand& input) {
    if (!trainable_.gate_up) return;
    calls.push_back(BindProduct(binder, {.role = ProductRole::kWeightGradient,
                                         .a = dy.values,
                                         .b = input.values,
                                         .a_scales = dy.scales,
                                         .b_scales = input.scales,
                                         .offsets = offsets,
                                         .out = operands.out(kDgateUp),
                                         .write = operands.write(kDgateUp)}));
  };
  if (lines) weight_gradient({up}, {rows});  // Before the rounded gradient takes the place of `up`.
  const ScaledOperand dy = rounder(Rounded::kFirstGradient, up, up, offsets, calls);
  if (!lines && (trainable_.gate_up || form_.has_histories())) {
    weight_gradient(
        dy, rounder(Rounded::kFirstInput, rows, operands.rounded(kRoundedRows), offsets, calls));
  }
  const ScaledOperand gate_up =
      lines ? rounder.ForInputGradient(Rounded::kFirstWeight, operands.in(kGateUp),
                                       operands.rounded(kRoundedGateUp), calls)
            : operands.gate_up;
  calls.push_back(BindProduct(binder, {.role = ProductRole::kInputGradient,
                                       .a = dy.values,
                                       .b = gate_up.values,
                                       .a_scales = dy.scales,
                                       .b_scales = gate_up.scales,
                                       .offsets = offsets,
                                       .out = drows,
                                       .nf4 = operands.gate_up.nf4}));
  if (adapter.valid()) adapter.AddInputGradient(binder, drows, calls);
}

}  // namespace trainyard::ops
