#include "train/step/step_runner.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace trainyard {
namespace {

// Seconds between calls of Lap.
class Stopwatch {
 public:
  double Lap() {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    return seconds;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

void Forward(Executable& executable, const MicroBatchData& data, const MicroBatch& micro_batch) {
  executable.WriteInput("tokens", micro_batch.slot, data.tokens);
  executable.WriteInput("targets", micro_batch.slot, data.targets);
  executable.Run(Action::kForward, micro_batch);
}

}  // namespace

StepState InitialState(const StepInput& input) {
  StepState state;
  state.step = input.step;
  state.learning_rate = input.learning_rate;
  state.loss_scale = 1 / double(input.tokens);
  state.clip_norm = input.clip_norm;
  state.seed = input.seed;
  return state;
}

StepOutput RunStep(Executable& executable, const StepState& state, const StepBatch& batch) {
  StepOutput output;
  executable.TakeCommunicationSeconds();
  Stopwatch stopwatch;
  executable.WriteStepState(state);
  for (size_t i = 0; i < batch.size(); ++i) {
    const MicroBatch micro_batch{.first = i == 0, .last = i + 1 == batch.size()};
    Forward(executable, batch[i], micro_batch);
    output.phases.forward += stopwatch.Lap();
    executable.Run(Action::kBackward, micro_batch);
    output.phases.backward += stopwatch.Lap();
  }
  executable.Run(Action::kOptimizer);
  output.state = executable.ReadStepState();
  const double optimizer = stopwatch.Lap();
  output.phases.grad_sync = std::min(optimizer, executable.TakeCommunicationSeconds().waited);
  output.phases.optimizer = optimizer - output.phases.grad_sync;
  return output;
}

double RunForward(Executable& executable, const StepBatch& batch, int64_t tokens) {
  executable.WriteStepState(InitialState({.tokens = tokens}));
  for (const MicroBatchData& data : batch) Forward(executable, data, {});
  return executable.ReadStepState().loss;
}

Agreement Agree(Collective& collective, const Agreement& mine) {
  // Flags are counted; each rank's seconds have a slot of their own, so that a sum does for all.
  std::vector<double> joined(2 + size_t(collective.size()));
  joined[0] = mine.finite ? 0 : 1;
  joined[1] = mine.stop ? 1 : 0;
  joined[2 + size_t(collective.rank())] = mine.seconds;
  collective.AllReduceSum(Tensor{{joined.data(), DType::kF64, Shape{int64_t(joined.size())}}});
  return {.finite = joined[0] == 0,
          .stop = joined[1] != 0,
          .seconds = *std::max_element(joined.begin() + 2, joined.end())};
}

}  // namespace trainyard
