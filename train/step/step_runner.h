// Runs one optimizer step, or one validation pass, on one rank: drives the executable, and measures
// the time of each phase.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "common/rank_records.h"
#include "kernels/collective/collective.h"
#include "kernels/device/step_state.h"
#include "models/program/executable.h"
#include "train/pipeline/message.h"
#include "train/pipeline/schedule.h"
#include "train/step/phase_clock.h"
#include "train/step/prefetch.h"

namespace trainyard {

// What the loss of a batch is divided by.
struct BatchCounts {
  // Targets that are not counted. Of pairs of answers (kernels/loss/preference.h), whose losses are
  // counted as one each: tokens less pairs.
  int64_t uncounted = 0;
  int64_t answer_targets = 0;  // Of pairs: the counted targets of the chosen answers.
};

// The input of a step, besides its batch.
struct StepInput {
  int64_t step = 0;
  double learning_rate = 0;
  double clip_norm = 0;
  int64_t tokens = 0;       // Of the whole global batch.
  BatchCounts counts = {};  // Likewise (trainer/counted_targets.h).
  uint64_t seed = 0;
};
StepState InitialState(const StepInput& input);

struct StepOutput {
  StepState state;      // Loss and gradient norm are those of the whole job.
  PhaseSeconds phases;  // This rank's.
};

// Runs one rank's part of a pipeline schedule on its executable. Without a pipeline, micro-batches
// run one after the other.
class StepRunner {
 public:
  // `executable` must have been planned for the schedule (PlanFor). `pipeline` is the group of the
  // rank's pipeline stages, in order; null if there is one stage. Both must outlive the runner.
  StepRunner(Executable& executable, PipelineSchedule schedule, Collective* pipeline);

  // Computes the gradients of all micro-batches, reduces them, and updates the parameters. If
  // state.finite is 0 afterwards, nothing was updated. `batch` must have as many micro-batches as
  // the schedule. Calls `action_done` after each action of the schedule.
  StepOutput Step(const StepState& state, const StepBatch& batch,
                  const std::function<void()>& action_done);

  // Returns the state with the sums of the losses over the batch, each scaled by 1 / tokens: this
  // rank's part of the mean if all targets are counted. Calls `done` with the number of each
  // micro-batch once all parts of the model on this rank have computed it.
  StepState Forward(const StepBatch& batch, int64_t tokens,
                    const std::function<void(int64_t)>& done = nullptr);

 private:
  // `micro_batch` has the facts that do not follow from the action.
  void Run(const PipelineAction& action, const MicroBatchData& data, MicroBatch micro_batch);
  // Copies values between neighbouring parts of this stage. The earlier part's slot holds a
  // micro-batch throughout, so the copies run with the later part's actions: that of the activation
  // before its forward, and that of the gradient after its backward.
  void HandOver(const PipelineAction& action);
  // The values received before the action, and those sent after it. Gradients that no trainable
  // parameter needs are not sent.
  std::vector<Value> ReceivedFor(const PipelineAction& action) const;
  std::vector<Value> SentAfter(const PipelineAction& action) const;
  void Expect(const PipelineAction& action);  // Posts the receives of an action, if it has any.
  void WaitFor(Value value, int slot);        // Until this memory's messages have been sent.
  void WaitForAll();
  void Wait(const char* name, const std::function<void()>& wait);  // Times a wait for other stages.

  Executable& executable_;
  const PipelineSchedule schedule_;
  Collective* const pipeline_;
  const int stage_;
  // ExpectedFrom for this stage. A receive is posted as soon as its memory is free, so that the
  // message travels while this rank computes, and its sender gets its own memory back.
  std::vector<std::vector<int>> expected_from_;  // By action.
  std::vector<int> next_blocks_;  // MicroBatch::next_block of each action, and of the optimizer.
  std::map<std::pair<int, int>, int> slot_of_;  // By chunk and micro-batch.
  // By sent value and slot. One value may be the gradient of several.
  std::multimap<std::pair<Value, int>, SendHandle> posted_;
  std::map<std::pair<Value, int>, ReceiveHandle> expected_;  // By received value and slot.
  PhaseClock clock_;
};

// The options for a stage's memory plan: how many micro-batches of each chunk it has in flight.
PlanOptions PlanFor(const PipelineSchedule& schedule, int stage, DeviceKind device);

// The facts that ranks exchange after every step, in one all-reduce.
struct Agreement {
  bool finite = true;       // On all ranks.
  bool stop = false;        // On some rank.
  bool superseded = false;  // Rank 0 has seen that a later attempt has begun.
  double seconds = 0;       // The slowest rank's.
};
Agreement Agree(Collective& collective, const Agreement& mine);

}  // namespace trainyard
