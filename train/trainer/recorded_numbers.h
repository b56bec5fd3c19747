// What the state after a step says to people.

#pragma once

#include <array>
#include <cstdint>

#include "common/step_numbers.h"
#include "kernels/device/step_state.h"
#include "kernels/device/tensor.h"
#include "models/arch/config.h"
#include "train/config/job_config.h"
#include "train/trainer/counted_targets.h"

namespace trainyard {

// Sets the losses, the norm and the rewards. `state` has the sums of the whole job.
void RecordState(const StepState& state, const JobConfig& job, const ModelConfig& model,
                 StepNumbers& numbers);

// What the batches of a validation add up to.
class ValidationSums {
 public:
  // `state` is that of a forward pass with the loss scale 1 / tokens of the whole validation.
  // `counts` has zeros where all targets count.
  void Add(const StepState& state, const BatchCounts& counts);
  // To be summed over all ranks.
  Tensor values() { return {{values_.data(), DType::kF64, Shape{int64_t(values_.size())}}}; }
  int64_t uncounted() const { return int64_t(values_[kUncounted]); }
  // Sets the loss, and of pairs the rewards. `tokens` are those of the whole validation.
  void Record(int64_t tokens, const JobConfig& job, StepNumbers& numbers) const;

 private:
  enum { kLoss, kUncounted, kAnswerLoss, kAnswerTargets, kMargin, kAccuracy, kValues };
  std::array<double, kValues> values_ = {};
};

}  // namespace trainyard
