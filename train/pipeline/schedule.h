// Pipeline schedules as data: the actions of each stage, their order, and their memory. Start here.
// schedules.cc has the table of schedules, and message.h the messages between stages. In
// tests/train/pipeline, check.h checks that a schedule can run, and simulate.h finds how long the
// schedule takes.
//
// The model is divided into stages x chunks consecutive parts. The stage of each part is data of
// the schedule (PipelineSchedule::stage_of), and so are the messages between neighbouring parts.

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
  int slot;  // Number of the activation memory, among the slots of the chunk.

  bool operator==(const PipelineAction&) const = default;
};
std::string ToString(const PipelineAction& action);

struct ScheduleKind;

// Returns the schedule of a job that names none: ONE_F_ONE_B if a stage has one chunk,
// INTERLEAVED_ONE_F_ONE_B if it has several. Never null.
const ScheduleKind* DefaultSchedule(int64_t chunks);

struct ScheduleOptions {
  const ScheduleKind* kind = DefaultSchedule(1);
  int stages = 1;         // Ranks along the pipeline axis.
  int chunks = 1;         // Parts of the model on each stage.
  int micro_batches = 1;  // Per step.

  // Checks that all numbers are at least 1 and legal for the kind.
  absl::Status Validate() const;
};

// The properties of a schedule: a row of the table in schedules.cc.
struct ScheduleKind {
  absl::string_view name;  // As in a job spec: "GPIPE".
  // Limits of the chunks per stage. More than one chunk needs more than one stage.
  int least_chunks = 1;
  int most_chunks = 1;
  bool whole_rounds = false;    // The number of micro-batches is a multiple of `stages`.
  bool split_backward = false;  // The weights' half runs late, to fill the bubble.
  int (*stage_of)(int part, int stages);
  // Returns the actions of a stage, in order. MakeSchedule assigns their slots.
  std::vector<PipelineAction> (*actions)(const ScheduleOptions& options, int stage);

  bool TakesChunks(int64_t chunks) const { return chunks >= least_chunks && chunks <= most_chunks; }
  bool sets_chunks() const { return least_chunks == most_chunks; }
  std::string ChunksWanted() const;  // "2", "at least 2".
};
std::span<const ScheduleKind> AllSchedules();
const ScheduleKind* FindSchedule(absl::string_view name);  // CHECKs that it is in the table.

// Returns the stage of each part, in the order of the model. Does not depend on the number of
// micro-batches.
std::vector<int> PlaceParts(const ScheduleOptions& options);

// The properties of every schedule. The test tests/train/pipeline/check_test.cc verifies them:
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

  // Returns the part of the model that a chunk of a stage is. A stage's chunks are the parts that
  // it holds, in the order of the model.
  int PartOf(int stage, int chunk) const;
};

// Makes a schedule. A forward takes its chunk's lowest free slot, so a chunk has as many slots as
// it ever has micro-batches in flight. A pure function. Errors are those of Validate.
absl::StatusOr<PipelineSchedule> MakeSchedule(const ScheduleOptions& options);

}  // namespace trainyard
