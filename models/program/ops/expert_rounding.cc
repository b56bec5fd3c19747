#include "models/program/ops/expert_rounding.h"

#include <algorithm>

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
  if (!weight_gradient.scaled()) {
    for (const ProductFormat& one : {forward, input_gradient}) {
      for (const OperandFormat& operand : {one.a, one.b}) {
        CHECK(operand.scaling == Scaling{.kept = 1}) << "experts: an operand has scales of lines";
      }
    }
    CHECK(input_gradient.b == forward.b) << "experts: a weight has one format";
    return ExpertRounding{.input = forward.a.dtype,
                          .weight = forward.b.dtype,
                          .gradient = input_gradient.a.dtype,
                          .of_lines = true};
  }
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

Recorder::Output FactorsOfExperts(const Recorder& recorder, const ExpertRounding& rounding,
                                  const RoundedShapes& shapes, int count) {
  int64_t most = shapes.first_weight[0];  // Experts.
  if (rounding.of_lines) {
    most = shapes.rows;
    for (const Shape& weight : {shapes.first_weight, shapes.second_weight}) {
      most = std::max({most, weight[0] * weight[1], weight[0] * weight[2]});
    }
  }
  return Recorder::Output::Memory("factors", {2 * count, most},
                                  AccumulateOfDType(recorder.precision().activation));
}

Tensor ExpertRounder::Factor(int row, const Shape& shape) const {
  Tensor factor = factors_;
  factor.data = static_cast<std::byte*>(factors_.data) +
                row * factors_.shape.back() * int64_t(SizeOf(factors_.dtype));
  factor.shape = shape;
  return factor;
}

DType ExpertRounder::FormatOf(Rounded which) const {
  if (IsWeight(which)) return rounding_->weight;
  const bool input = which == Rounded::kFirstInput || which == Rounded::kSecondInput;
  return input ? rounding_->input : rounding_->gradient;
}

ScaledOperand ExpertRounder::Round(Rounded which, const Operand& operand, bool by_columns,
                                   std::vector<Call>& calls) const {
  const auto& [x, rounded, offsets] = operand;
  if (!rounding_) return {x};
  const ScaleOf scale_of = !rounding_->of_lines ? ScaleOf::kGroup
                           : by_columns         ? ScaleOf::kColumn
                                                : ScaleOf::kRow;
  Shape of_scales = {IsWeight(which) ? x.shape[0] : offsets.elements() - 1};
  if (rounding_->of_lines && IsWeight(which)) {
    of_scales = {x.shape[0], x.shape[by_columns ? 2 : 1]};
  } else if (rounding_->of_lines) {
    of_scales = {x.shape.rows()};
  }
  const Tensor amax = Factor(2 * int(which), of_scales);
  const Tensor scales = Factor(2 * int(which) + 1, of_scales);
  const Tensor& history = history_[size_t(which)];
  const Noted& noted = noted_[size_t(which)];
  if (!Has(history) || Has(noted.gradient)) {
    calls.push_back(binder_.Kernel(GroupedAmaxArgs{.x = x,
                                                   .offsets = offsets,
                                                   .amax = amax,
                                                   .write = Write::kOverwrite,
                                                   .scale_of = scale_of}));
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
                                                  .scales = scales,
                                                  .scale_of = scale_of}));
  return {.values = rounded, .scales = {.scales = scales}};
}

}  // namespace trainyard::ops
