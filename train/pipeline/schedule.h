// Pipeline schedules as data: which stage runs what, in which order, in which memory. Start here;
// schedules.cc has the table of them, message.h says what passes between stages, check.h whether a
// schedule can run, simulate.h how long it takes.
//
// The model is stages x chunks consecutive parts. The schedule places them: which stage holds a
// part is data in it (PipelineSchedule::stage_of), and so are the messages between neighbouring
// parts.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard {

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

struct ScheduleKind;

// What runs where a job names no schedule: ONE_F_ONE_B with one chunk a stage, with several
// INTERLEAVED_ONE_F_ONE_B. Never null.
const ScheduleKind* DefaultSchedule(int64_t chunks);

struct ScheduleOptions {
  const ScheduleKind* kind = DefaultSchedule(1);
  int stages = 1;         // Ranks along the pipeline axis.
  int chunks = 1;         // Parts of the model on each stage.
  int micro_batches = 1;  // Of one step.

  // All are at least 1, and as the kind wants them.
  absl::Status Validate() const;
};

// What there is to know of a schedule. A row of the table in schedules.cc.
struct ScheduleKind {
  absl::string_view name;  // As users write it: "GPIPE".
  // How many chunks a stage has. Several chunks want several stages.
  int least_chunks = 1;
  int most_chunks = 1;
  bool whole_rounds = false;    // The number of micro-batches is a multiple of `stages`.
  bool split_backward = false;  // Into halves. The weights' half is run late, to fill the bubble.
  int (*stage_of)(int part, int stages);
  // The actions of a stage, in order. Their slots are given out by MakeSchedule.
  std::vector<PipelineAction> (*actions)(const ScheduleOptions& options, int stage);

  bool TakesChunks(int64_t chunks) const { return chunks >= least_chunks && chunks <= most_chunks; }
  bool sets_chunks() const { return least_chunks == most_chunks; }
  std::string ChunksWanted() const;  // "2", "at least 2".
};
std::span<const ScheduleKind> AllSchedules();
const ScheduleKind* FindSchedule(absl::string_view name);  // There must be one.

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
