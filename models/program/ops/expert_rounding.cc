#include "models/program/ops/expert_rounding.h"

#include "kernels/products/amax_history.h"
#include "kernels/products/grouped_round.h"
#include "models/program/amax_history.h"

namespace trainyard::ops {
namespace {

bool Has(const Tensor& tensor) { return tensor.data != nullptr; }

bool IsWeight(Rounded which) {
  return which == Rounded::kFirstWeight || which == Rounded::kSecondWeight;
}

}  // namespace

std::optional<ExpertRounding> RoundingOfExperts(const Recorder& recorder) {
  using enum ProductRole;
  if (recorder.layer_kind() == ProductKind::kPlain) return std::nullopt;
  const auto format = [&](ProductRole role) {
    return recorder.precision().product({ProductKind::kExperts, role});
  };
  const ProductFormat forward = format(kForward), input_gradient = format(kInputGradient);
  const ProductFormat weight_gradient = format(kWeightGradient);
  if (!forward.scaled()) return std::nullopt;
  for (const ProductFormat& one : {forward, input_gradient, weight_gradient}) {
    for (const OperandFormat& operand : {one.a, one.b}) {
      CHECK(operand.scaling && !operand.scaling->kept && !operand.scaling->summed &&
            operand.scaling->history == forward.a.scaling->history)
          << "experts: an operand has one scale for each expert";
    }
  }
  CHECK(weight_gradient.b == forward.a && input_gradient.b == forward.b &&
        weight_gradient.a == input_gradient.a)
      << "experts: an operand is rounded once for all roles";
  return ExpertRounding{.input = forward.a.dtype,
                        .weight = forward.b.dtype,
                        .gradient = input_gradient.a.dtype,
                        .history = forward.a.scaling->history};
}

std::vector<Value> HistoriesOfExperts(Recorder& recorder, const ExpertRounding& rounding,
                                      Value first_weight, Value second_weight, int count) {
  struct Operand {
    Value weight;
    const char* what;
  };
  const Operand operands[kRoundedBackward] = {
      {first_weight, "input"},           {first_weight, "weight"},
      {second_weight, "input"},          {second_weight, "weight"},
      {first_weight, "output_gradient"}, {second_weight, "output_gradient"}};
  std::vector<Value> histories;
  if (rounding.history == 0) return histories;
  for (int i = 0; i < count; ++i) {
    const ParameterSpec weight = recorder.program().storage(operands[i].weight).parameters.front();
    histories.push_back(recorder.Parameter({.name = NameOfHistory(weight.name, operands[i].what),
                                            .shape = {weight.shape[0], rounding.history},
                                            .shard = weight.shard,
                                            .unrounded = true,
                                            .state = StateRule::AmaxHistory(),
                                            .stacked = true}));
  }
  return histories;
}

Recorder::Output FactorsOfExperts(const Recorder& recorder, int64_t experts, int count) {
  return Recorder::Output::Memory("factors", {2 * count, experts},
                                  AccumulateOfDType(recorder.precision().activation));
}

Tensor ExpertRounder::Factor(int row, int64_t elements) const {
  Tensor factor = factors_;
  factor.data = static_cast<std::byte*>(factors_.data) +
                row * factors_.shape.back() * int64_t(SizeOf(factors_.dtype));
  factor.shape = {elements};
  return factor;
}

DType ExpertRounder::FormatOf(Rounded which) const {
  if (IsWeight(which)) return rounding_->weight;
  const bool input = which == Rounded::kFirstInput || which == Rounded::kSecondInput;
  return input ? rounding_->input : rounding_->gradient;
}

ScaledOperand ExpertRounder::operator()(Rounded which, const Tensor& x, const Tensor& rounded,
                                        const Tensor& offsets, std::vector<Call>& calls) const {
  if (!rounding_) return {x};
  const int64_t groups = IsWeight(which) ? x.shape[0] : offsets.elements() - 1;
  const Tensor amax = Factor(2 * int(which), groups), scales = Factor(2 * int(which) + 1, groups);
  const Tensor& history = history_[size_t(which)];
  const Noted& noted = noted_[size_t(which)];
  if (!Has(history) || Has(noted.gradient)) {
    calls.push_back(binder_.Kernel(
        GroupedAmaxArgs{.x = x, .offsets = offsets, .amax = amax, .write = Write::kOverwrite}));
  }
  if (Has(noted.gradient)) {
    calls.push_back(binder_.Kernel(
        AmaxHistoryGradientArgs{.amax = amax, .gradient = noted.gradient, .write = noted.write}));
  }
  calls.push_back(binder_.Kernel(GroupedRoundArgs{.x = x,
                                                  .offsets = offsets,
                                                  .amax = Has(history) ? history : amax,
                                                  .format = FormatOf(which),
                                                  .y = rounded,
                                                  .scales = scales}));
  return {.values = rounded, .scales = {.scales = scales}};
}

}  // namespace trainyard::ops
