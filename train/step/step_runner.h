// One optimizer step on one rank, and its validation pass: the executable driven, and timed by
// phase.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "kernels/collective/collective.h"
#include "kernels/device/step_state.h"
#include "models/program/executable.h"
#include "train/pipeline/message.h"
#include "train/pipeline/schedule.h"
#include "train/step/phase_clock.h"
#include "train/step/prefetch.h"
#include "train/step/trainer.h"

namespace trainyard {

// What a step runs on.
struct StepInput {
  int64_t step = 0;
  double learning_rate = 0;
  double clip_norm = 0;
  int64_t tokens = 0;  // Counted ones of the whole global batch.
  uint64_t seed = 0;
};
StepState InitialState(const StepInput& input);

struct StepOutput {
  StepState state;      // Loss and gradient norm of the whole job.
  PhaseSeconds phases;  // This rank's.
};

// Runs one rank's part of a pipeline schedule on its executable; without a pipeline that is one
// micro-batch after the other.
class StepRunner {
 public:
  // `executable` was planned for the schedule (PlanFor). `pipeline`: the group of its stages, in
  // their order; null where there is one. Both outlive the runner.
  StepRunner(Executable& executable, PipelineSchedule schedule, Collective* pipeline);

  // Gradients of all micro-batches, their reduction, and the update (which is not committed where
  // state.finite comes out as 0). `batch` has as many micro-batches as the schedule. `action_done`
  // is called after each forward and backward of one.
  StepOutput Step(const StepState& state, const StepBatch& batch,
                  const std::function<void()>& action_done);

  // Sum of losses over the batch, each scaled by 1 / tokens: this rank's part of the mean.
  double Forward(const StepBatch& batch, int64_t tokens);

 private:
  // `micro_batch`: what the action does not say.
  void Run(const PipelineAction& action, const MicroBatchData& data, MicroBatch micro_batch);
  // Between neighbouring parts of this stage. The earlier part's slot holds a micro-batch
  // throughout, so the copies run with the later part's actions: the activation's before a
  // forward, the gradient's after a backward.
  void HandOver(const PipelineAction& action);
  // What comes before the action, and what leaves after it. Not gradients that nothing trainable
  // wants.
  std::vector<Value> ReceivedFor(const PipelineAction& action) const;
  std::vector<Value> SentAfter(const PipelineAction& action) const;
  void Expect(const PipelineAction& action);  // What another stage sends it, if anything.
  void WaitFor(Value value, int slot);        // Until all messages from this memory have left.
  void WaitForAll();
  void Wait(const char* name, const std::function<void()>& wait);  // For other stages.

  Executable& executable_;
  const PipelineSchedule schedule_;
  Collective* const pipeline_;
  const int stage_;
  // A message leaves when it is expected: as early as there is a place for it, so that it comes
  // while this rank computes, and its sender has its memory back.
  std::vector<std::vector<int>> expected_from_;  // ExpectedFrom, of this stage.
  std::vector<int> next_blocks_;  // MicroBatch::next_block of each action, and of the optimizer.
  std::map<std::pair<int, int>, int> slot_of_;  // By chunk and micro-batch.
  // By what is sent, and slot. One value may be the gradient of several.
  std::multimap<std::pair<Value, int>, SendHandle> posted_;
  std::map<std::pair<Value, int>, ReceiveHandle> expected_;  // By what is received, and slot.
  PhaseClock clock_;
};

// How many micro-batches of each chunk this rank's stage has in flight.
PlanOptions PlanFor(const PipelineSchedule& schedule, int stage, DeviceKind device);

// What ranks tell each other after every step, in one all-reduce.
struct Agreement {
  bool finite = true;       // Everywhere.
  bool stop = false;        // Somewhere.
  bool superseded = false;  // A later attempt has begun; rank 0 has seen it.
  double seconds = 0;       // Of the slowest rank.
};
Agreement Agree(Collective& collective, const Agreement& mine);

}  // namespace trainyard
