// Pipeline schedules as data: which stage runs what, in which order, in which memory. Start here;
// message.h says what passes between stages, check.h whether a schedule can run, simulate.h how
// long it takes.
//
// The model is stages x chunks consecutive parts. The schedule places them: which stage holds a
// part is data in it (PipelineSchedule::stage_of), and so is what neighbouring parts tell each
// other.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trainyard {

enum class ScheduleKind {
  kGPipe,            // All forwards, then all backwards. Huang et al. 2019, arXiv:1811.06965.
  k1F1B,             // One forward, one backward. Narayanan et al. 2021, arXiv:2006.09503.
  kInterleaved1F1B,  // The same over several chunks a stage. arXiv:2104.04473, section 2.2.2.
  kZeroBubble,       // 1F1B with late weight gradients: ZB-H1 of Qi et al. 2023, arXiv:2401.10241.
};
// For users: "GPIPE", "ONE_F_ONE_B", "INTERLEAVED_ONE_F_ONE_B", "ZERO_BUBBLE".
const char* Name(ScheduleKind kind);

struct PipelineAction {
  enum Kind {
    kForward,
    kBackward,  // Both halves in one.
    kBackwardInput,
    kBackwardWeight,
  };
  Kind kind;
  int chunk;
  int micro_batch;
  int slot;  // The activation memory, among those of the chunk.

  bool operator==(const PipelineAction&) const = default;
};
std::string ToString(const PipelineAction& action);

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::k1F1B;
  int stages = 1;         // Ranks along the pipeline axis.
  int chunks = 1;         // Parts of the model on each stage.
  int micro_batches = 1;  // Of one step.

  // All are at least 1. kInterleaved1F1B wants several stages, several chunks, and whole rounds of
  // micro-batches: a multiple of `stages`. The others want one chunk.
  absl::Status Validate() const;
};

// The stage that holds each part of the model, in the model's order. Does not depend on the number
// of micro-batches.
std::vector<int> PlaceParts(const ScheduleOptions& options);

// What holds in every schedule, and CheckSchedule() verifies:
//
// * Each stage runs forward and both halves of backward once for each chunk and micro-batch.
// * The forwards of a chunk run in the order of its micro-batches, and so do its input gradients
//   and its weight gradients. So gradients are summed in the same order under every schedule; a
//   chunk's gradients are begun by micro-batch 0 and complete after the last.
// * A micro-batch holds one slot from its forward to the end of kBackward or kBackwardWeight, and
//   holds it alone.
// * If sends do not wait for their receivers, no stage waits forever, and whatever one stage sends
//   to another is received in the order it was sent. (If sends wait, stages block one another.)
struct PipelineSchedule {
  struct Stage {
    std::vector<PipelineAction> actions;
    std::vector<int> slots;  // Number of slots of each chunk.
  };
  ScheduleOptions options;
  std::vector<int> stage_of;  // PlaceParts.
  std::vector<Stage> stages;

  // A stage's chunks are the parts that it holds, in the model's order.
  int PartOf(int stage, int chunk) const;
};

// A pure function. A forward takes its chunk's lowest free slot, so a chunk has as many slots as it
// ever has micro-batches in flight. Errors are those of Validate().
absl::StatusOr<PipelineSchedule> MakeSchedule(const ScheduleOptions& options);

}  // namespace trainyard
