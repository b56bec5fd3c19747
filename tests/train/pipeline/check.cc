#include "tests/train/pipeline/check.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "tests/train/pipeline/simulate.h"

namespace trainyard {
namespace {

// Walks through the actions of one stage.
class StageChecker {
 public:
  StageChecker(const ScheduleOptions& options, const PipelineSchedule::Stage& stage)
      : micro_batches_(options.micro_batches), stage_(stage) {
    for (const int slots : stage.slots) {
      chunks_.push_back({.slots = std::vector<int>(size_t(slots), kFree)});
    }
  }

  absl::Status Check() {
    for (size_t i = 0; i < stage_.actions.size(); ++i) {
      const PipelineAction& action = stage_.actions[i];
      if (const absl::Status status = CheckAction(action); !status.ok()) {
        return absl::FailedPreconditionError(
            absl::StrCat("action ", i, " (", ToString(action), "): ", status.message()));
      }
    }
    for (size_t c = 0; c < chunks_.size(); ++c) {
      const Chunk& chunk = chunks_[c];
      for (const int done : {chunk.forwards, chunk.inputs, chunk.weights}) {
        if (done == micro_batches_) continue;
        return absl::FailedPreconditionError(
            absl::StrCat("chunk ", c, ": wanted ", micro_batches_,
                         " forwards, backwards of inputs and backwards of weights, found ",
                         chunk.forwards, ", ", chunk.inputs, " and ", chunk.weights));
      }
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int kFree = -1;

  // Micro-batches run in order, so the number of finished ones is the next one.
  struct Chunk {
    std::vector<int> slots;  // The micro-batch that holds each slot.
    int forwards = 0;
    int inputs = 0;
    int weights = 0;
  };

  absl::Status CheckAction(const PipelineAction& action) {
    if (action.chunk < 0 || action.chunk >= int(chunks_.size())) {
      return absl::OutOfRangeError(absl::StrCat("there are ", chunks_.size(), " chunks"));
    }
    Chunk& chunk = chunks_[size_t(action.chunk)];
    if (action.slot < 0 || action.slot >= int(chunk.slots.size())) {
      return absl::OutOfRangeError(absl::StrCat("there are ", chunk.slots.size(), " slots"));
    }
    int& holder = chunk.slots[size_t(action.slot)];
    if (action.kind == PipelineAction::kForward) {
      // If another micro-batch still holds the slot, its backward will find this one.
      holder = action.micro_batch;
      return Advance(action, chunk.forwards);
    }
    if (holder != action.micro_batch) {
      return absl::FailedPreconditionError(
          holder == kFree ? "the slot is free"
                          : absl::StrCat("the slot holds micro-batch ", holder));
    }
    if (action.kind != PipelineAction::kBackwardWeight) {
      RETURN_IF_ERROR(Advance(action, chunk.inputs));
    }
    if (action.kind != PipelineAction::kBackwardInput) {
      holder = kFree;
      return Advance(action, chunk.weights);
    }
    return absl::OkStatus();
  }

  static absl::Status Advance(const PipelineAction& action, int& next) {
    if (action.micro_batch != next) {
      return absl::FailedPreconditionError(absl::StrCat("wanted micro-batch ", next, " next"));
    }
    ++next;
    return absl::OkStatus();
  }

  const int micro_batches_;
  const PipelineSchedule::Stage& stage_;
  std::vector<Chunk> chunks_;
};

}  // namespace

absl::Status CheckSchedule(const PipelineSchedule& schedule) {
  const ScheduleOptions& options = schedule.options;
  RETURN_IF_ERROR(options.Validate());
  if (int(schedule.stages.size()) != options.stages) {
    return absl::FailedPreconditionError(absl::StrCat("wanted lists for ", options.stages,
                                                      " stages, found ", schedule.stages.size()));
  }
  if (schedule.stage_of != PlaceParts(options)) {
    return absl::FailedPreconditionError("the parts are not placed as the schedule places them");
  }
  for (int s = 0; s < options.stages; ++s) {
    const auto parts = std::count(schedule.stage_of.begin(), schedule.stage_of.end(), s);
    if (parts == options.chunks) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("stage ", s, ": wanted ", options.chunks, " parts, found ", parts));
  }
  for (size_t s = 0; s < schedule.stages.size(); ++s) {
    const PipelineSchedule::Stage& stage = schedule.stages[s];
    if (int(stage.slots.size()) != options.chunks) {
      return absl::FailedPreconditionError(absl::StrCat("stage ", s, ": wanted the slots of ",
                                                        options.chunks, " chunks, found ",
                                                        stage.slots.size()));
    }
    for (const int slots : stage.slots) {
      if (slots >= 1 && slots <= options.micro_batches) continue;
      return absl::FailedPreconditionError(absl::StrCat("stage ", s, ": wanted 1 to ",
                                                        options.micro_batches,
                                                        " slots for each chunk, found ", slots));
    }
    if (const absl::Status status = StageChecker(options, stage).Check(); !status.ok()) {
      return absl::FailedPreconditionError(absl::StrCat("stage ", s, ", ", status.message()));
    }
  }
  return Simulate(schedule, {}).status();
}

}  // namespace trainyard
