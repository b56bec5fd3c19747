#include "train/pipeline/schedule.h"

#include <algorithm>
#include <functional>
#include <queue>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/violations.h"

namespace trainyard {
namespace {

using Kind = PipelineAction::Kind;

// A chunk's slots.
struct ChunkSlots {
  int count = 0;
  std::priority_queue<int, std::vector<int>, std::greater<>> free = {};  // Lowest first.
  std::vector<int> held = {};                                            // By micro-batch.
};

void AssignSlots(const ScheduleOptions& options, PipelineSchedule::Stage& stage) {
  std::vector<ChunkSlots> chunks(size_t(options.chunks));
  for (ChunkSlots& chunk : chunks) chunk.held.resize(size_t(options.micro_batches));
  for (PipelineAction& action : stage.actions) {
    ChunkSlots& chunk = chunks[size_t(action.chunk)];
    int& slot = chunk.held[size_t(action.micro_batch)];
    if (action.kind == Kind::kForward) {
      if (chunk.free.empty()) chunk.free.push(chunk.count++);
      slot = chunk.free.top();
      chunk.free.pop();
    }
    action.slot = slot;
    if (action.kind == Kind::kBackward || action.kind == Kind::kBackwardWeight) {
      chunk.free.push(slot);
    }
  }
  for (const ChunkSlots& chunk : chunks) stage.slots.push_back(chunk.count);
}

}  // namespace

std::string ToString(const PipelineAction& action) {
  constexpr const char* kNames[] = {"forward", "backward", "backward of inputs",
                                    "backward of weights"};
  return absl::StrCat(kNames[action.kind], " of chunk ", action.chunk, ", micro-batch ",
                      action.micro_batch, ", slot ", action.slot);
}

std::string ScheduleKind::ChunksWanted() const {
  return absl::StrCat(sets_chunks() ? "" : "at least ", least_chunks);
}

absl::Status ScheduleOptions::Validate() const {
  const auto wrong = [&](const absl::AlphaNum& wanted, int found, const absl::AlphaNum& nearest) {
    return WrongField(kind->name, wanted, found, nearest);
  };
  if (stages < 1) return wrong("at least 1 stage", stages, 1);
  if (chunks < 1) return wrong("at least 1 chunk a stage", chunks, 1);
  if (micro_batches < 1) return wrong("at least 1 micro-batch", micro_batches, 1);
  if (!kind->TakesChunks(chunks)) {
    return wrong(absl::StrCat(kind->ChunksWanted(),
                              kind->least_chunks == 1 ? " chunk a stage" : " chunks a stage"),
                 chunks, std::clamp(chunks, kind->least_chunks, kind->most_chunks));
  }
  if (stages == 1 && chunks > 1) return wrong("at least 2 stages", stages, 2);
  if (!kind->whole_rounds || micro_batches % stages == 0) return absl::OkStatus();
  const int below = micro_batches / stages * stages;
  return wrong(absl::StrCat("micro-batches in a multiple of its ", stages, " stages"),
               micro_batches,
               absl::StrCat(below == 0 ? "" : absl::StrCat(below, " or "), below + stages));
}

std::vector<int> PlaceParts(const ScheduleOptions& options) {
  std::vector<int> stage_of(size_t(options.stages * options.chunks));
  for (size_t part = 0; part < stage_of.size(); ++part) {
    stage_of[part] = options.kind->stage_of(int(part), options.stages);
  }
  return stage_of;
}

int PipelineSchedule::PartOf(int stage, int chunk) const {
  int part = 0;
  for (; stage_of[size_t(part)] != stage || chunk-- > 0; ++part) continue;
  return part;
}

absl::StatusOr<PipelineSchedule> MakeSchedule(const ScheduleOptions& options) {
  RETURN_IF_ERROR(options.Validate());
  PipelineSchedule schedule{.options = options, .stage_of = PlaceParts(options), .stages = {}};
  for (int s = 0; s < options.stages; ++s) {
    PipelineSchedule::Stage& stage = schedule.stages.emplace_back();
    stage.actions = options.kind->actions(options, s);
    AssignSlots(options, stage);
  }
  return schedule;
}

}  // namespace trainyard
