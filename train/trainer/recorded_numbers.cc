#include "train/trainer/recorded_numbers.h"

#include <optional>

#include "models/arch/registry.h"

namespace trainyard {
namespace {

// As Megatron logs it, so that models of any depth and coefficient can be compared.
std::optional<double> LoadBalancingLoss(const ModelConfig& model, const StepState& state) {
  const std::optional<ExpertFacts> experts = FactsOf(model).experts;
  if (!experts || experts->aux_loss == 0) return std::nullopt;
  return state.auxiliary_loss / (experts->aux_loss * double(experts->layers));
}

}  // namespace

void RecordState(const StepState& state, const JobConfig& job, const ModelConfig& model,
                 StepNumbers& numbers) {
  numbers.loss = state.loss + state.answer_loss;
  numbers.grad_norm = state.grad_norm;
  numbers.load_balancing_loss = LoadBalancingLoss(model, state);
  if (!job.preference) return;
  numbers.chosen_reward = state.chosen_reward;
  numbers.rejected_reward = state.rejected_reward;
  numbers.reward_margin = state.chosen_reward - state.rejected_reward;
  numbers.reward_accuracy = state.reward_accuracy;
}

void ValidationSums::Add(const StepState& state, const BatchCounts& counts) {
  values_[kLoss] += state.loss;
  values_[kUncounted] += double(counts.uncounted);
  values_[kAnswerLoss] += state.answer_loss;
  values_[kAnswerTargets] += double(counts.answer_targets);
  values_[kMargin] += state.chosen_reward - state.rejected_reward;
  values_[kAccuracy] += state.reward_accuracy;
}

void ValidationSums::Record(int64_t tokens, const JobConfig& job, StepNumbers& numbers) const {
  const double counted = 1 - values_[kUncounted] / double(tokens);  // The share of all tokens.
  numbers.validation_loss = values_[kLoss] / counted;
  if (!job.preference) return;
  if (values_[kAnswerTargets] > 0) {
    *numbers.validation_loss += values_[kAnswerLoss] * double(tokens) / values_[kAnswerTargets];
  }
  numbers.validation_reward_margin = values_[kMargin] / counted;
  numbers.validation_reward_accuracy = values_[kAccuracy] / counted;
}

}  // namespace trainyard
