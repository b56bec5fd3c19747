// The numbers that a trainer measures in an optimizer step, by name. The lines of a rank's socket,
// the API's messages, the controller's metrics and the exports of a job all use this one table. To
// add a number, add a member and a row here, and a field of the same name in v1::StepRecord. New
// numbers are optional, because ranks of the last release do not report them.

#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

namespace trainyard {

// Seconds by phase. `data`, `checkpoint` and `validation` are not part of the step's seconds. The
// other phases and the host's time between steps add up to the step's seconds (docs/metrics.md).
struct PhaseSeconds {
  double data = 0;  // Waiting for the batch, before the step.
  double forward = 0;
  double backward = 0;
  double grad_sync = 0;  // Communication that was not hidden: waiting for it or for a slower rank.
  double optimizer = 0;
  double pipeline_bubble = 0;  // Waiting for other stages.
  double checkpoint = 0;       // Stall after the step.
  double validation = 0;       // After the step, if it was measured.

  double of_step() const {  // The phases that are part of the step.
    return forward + backward + grad_sync + optimizer + pipeline_bubble;
  }
  // The host's time between steps, in a step of so many seconds.
  double host(double seconds) const { return std::max(0.0, seconds - of_step()); }
  // A step of so many seconds, together with the phases that are not part of it. The time left is
  // computed from these sums.
  double with_pauses(double seconds) const { return seconds + data + checkpoint + validation; }
};

struct PhaseName {
  const char* name;
  double PhaseSeconds::*seconds;
};
inline constexpr std::array<PhaseName, 8> kPhases = {{
    {"data", &PhaseSeconds::data},
    {"forward", &PhaseSeconds::forward},
    {"backward", &PhaseSeconds::backward},
    {"grad_sync", &PhaseSeconds::grad_sync},
    {"optimizer", &PhaseSeconds::optimizer},
    {"pipeline_bubble", &PhaseSeconds::pipeline_bubble},
    {"checkpoint", &PhaseSeconds::checkpoint},
    {"validation", &PhaseSeconds::validation},
}};

inline PhaseSeconds& operator+=(PhaseSeconds& sum, const PhaseSeconds& more) {
  for (const PhaseName& phase : kPhases) sum.*phase.seconds += more.*phase.seconds;
  return sum;
}

template <typename V>
void VisitFields(V& v, PhaseSeconds& phases) {
  for (const auto& [name, seconds] : kPhases) {
    // Ranks and histories of the last release do not have this phase.
    if (seconds == &PhaseSeconds::validation) {
      v.Later(name, phases.*seconds);
    } else {
      v(name, phases.*seconds);
    }
  }
}

// These are the same on every rank. An absent number is unknown, or was not measured in this step.
// Each member is a double or an optional double: gauges, rows of the store and exports hold nothing
// else.
struct StepNumbers {
  double loss = 0;       // Mean over the global batch's tokens; NaN: not finite.
  double grad_norm = 0;  // Before clipping; NaN: not finite.
  double learning_rate = 0;
  std::optional<double> mfu;              // Mfu of models/arch/flops.h; absent: a peak is unknown.
  std::optional<double> validation_loss;  // After this step, if it was measured.
  std::optional<double> model_flops_per_second_per_device;  // By the convention "exact".
  // Only of a model that trains for balance: the mean over its layers, without its coefficient. 1:
  // the experts are evenly loaded; the maximum is experts / top_k.
  std::optional<double> load_balancing_loss;
  // Only of packed data (ChatData): the share of the places of samples that are padding, in an
  // epoch of the training data.
  std::optional<double> padding_ratio;
  // Only of pairs of answers (kernels/loss/preference.h): means over the pairs of the global batch.
  std::optional<double> chosen_reward;
  std::optional<double> rejected_reward;
  std::optional<double> reward_margin;    // Their difference.
  std::optional<double> reward_accuracy;  // The share of pairs whose chosen answer has more.
  // The same two, over all pairs that are held out, after this step if it was measured.
  std::optional<double> validation_reward_margin;
  std::optional<double> validation_reward_accuracy;
};

struct StepNumber {
  const char* name;
  const char* metric;  // The controller's gauge is trainyard_<metric>.
  const char* help;    // The gauge's help: what a bad value means.
};

// Calls visit(const StepNumber&, number) for each number of a StepNumbers, const or not.
template <typename Numbers, typename Visit>
constexpr void ForEachNumber(Numbers& numbers, Visit&& visit) {
  visit(StepNumber{"loss", "loss", "Training loss of the last step. NaN or rising: diverging."},
        numbers.loss);
  visit(StepNumber{"grad_norm", "grad_norm",
                   "Global gradient norm before clipping. Spikes announce divergence."},
        numbers.grad_norm);
  visit(StepNumber{"learning_rate", "learning_rate",
                   "Learning rate of the last step. Not on its schedule: a fault."},
        numbers.learning_rate);
  visit(
      StepNumber{"mfu", "mfu_ratio",
                 "Model FLOPs divided by peak in the last step. Falling: a straggler or waiting."},
      numbers.mfu);
  visit(StepNumber{"model_flops_per_second_per_device", "model_flops_per_second_per_device",
                   "FLOPs of the model by convention, in the last step. Falling: as for mfu_ratio. "
                   "Known even if the peak is unknown."},
        numbers.model_flops_per_second_per_device);
  visit(StepNumber{"validation_loss", "validation_loss",
                   "Loss of the last validation. Rising while the training loss falls: "
                   "overfitting."},
        numbers.validation_loss);
  visit(
      StepNumber{
          "load_balancing_loss", "load_balancing_loss",
          "Load balance of experts: mean over layers, without its coefficient. 1: even. Far above: "
          "a few experts get most tokens. Absent: the model does not train for balance."},
      numbers.load_balancing_loss);
  visit(
      StepNumber{"padding_ratio", "padding_ratio",
                 "Share of packed samples that is padding. Large: samples are short beside chats, "
                 "so a longer batch.sequence trains faster. Absent: the data are not packed."},
      numbers.padding_ratio);
  visit(StepNumber{"chosen_reward", "chosen_reward",
                   "Mean reward of chosen answers. Falling fast: the model also forgets what it "
                   "should prefer. Absent: the data are not pairs of answers."},
        numbers.chosen_reward);
  visit(StepNumber{"rejected_reward", "rejected_reward",
                   "Mean reward of rejected answers. Rising: the model learns the wrong ones. "
                   "Absent: the data are not pairs of answers."},
        numbers.rejected_reward);
  visit(StepNumber{"reward_margin", "reward_margin",
                   "Mean of the chosen answer's reward less the rejected one's. Not rising: "
                   "nothing is learnt. Absent: the data are not pairs of answers."},
        numbers.reward_margin);
  visit(
      StepNumber{"reward_accuracy", "reward_accuracy_ratio",
                 "Share of pairs whose chosen answer has the larger reward. About 0.5: nothing is "
                 "learnt. Absent: the data are not pairs of answers."},
      numbers.reward_accuracy);
  visit(StepNumber{"validation_reward_margin", "validation_reward_margin",
                   "Mean margin of held-out pairs in the last validation. Not rising while "
                   "reward_margin rises: the answers are learnt by heart."},
        numbers.validation_reward_margin);
  visit(StepNumber{"validation_reward_accuracy", "validation_reward_accuracy_ratio",
                   "Share of held-out pairs whose chosen answer has the larger reward. About 0.5: "
                   "nothing is learnt that holds for other pairs."},
        numbers.validation_reward_accuracy);
}

template <typename V>
void VisitFields(V& v, StepNumbers& numbers) {
  ForEachNumber(numbers, [&](const StepNumber& row, auto& number) { v(row.name, number); });
}

constexpr size_t BytesOfNumbers() {
  size_t bytes = 0;
  StepNumbers numbers;
  ForEachNumber(numbers, [&](const StepNumber&, auto& number) { bytes += sizeof(number); });
  return bytes;
}
static_assert(BytesOfNumbers() == sizeof(StepNumbers), "a member of StepNumbers has no row");

}  // namespace trainyard
