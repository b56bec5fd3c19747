#include "train/pipeline/schedule.h"

#include <algorithm>
#include <functional>
#include <queue>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

using Kind = PipelineAction::Kind;

absl::Status Wanted(const ScheduleOptions& options, absl::string_view wanted, int found,
                    absl::string_view nearest) {
  return absl::InvalidArgumentError(absl::StrCat(Name(options.kind), " wants ", wanted, ", found ",
                                                 found, "; nearest ", nearest));
}

// One stage's actions: forwards run ahead of backwards by a number that the schedule decides.
class StageActions {
 public:
  StageActions(const ScheduleOptions& options, int stage) : options_(options), stage_(stage) {}

  std::vector<PipelineAction> Make() {
    const int total = options_.chunks * options_.micro_batches;
    const int warmup = std::min(Warmup(), total);
    // Weight gradients stay behind by as many micro-batches as this stage has fewer in flight than
    // the first: memory is the same on all stages, and the work is left for when others finish.
    const bool split = options_.kind == ScheduleKind::kZeroBubble;
    for (int backwards = 0, forwards = 0; backwards < total; ++backwards) {
      while (forwards < std::min(warmup + backwards + 1, total)) Add(Kind::kForward, forwards++);
      Add(split ? Kind::kBackwardInput : Kind::kBackward, backwards);
      if (split && backwards >= stage_) Add(Kind::kBackwardWeight, backwards - stage_);
    }
    for (int i = std::max(total - stage_, 0); split && i < total; ++i) {
      Add(Kind::kBackwardWeight, i);
    }
    return std::move(actions_);
  }

 private:
  // Forwards before the first pair of forward and backward.
  int Warmup() const {
    const int stages_after = options_.stages - 1 - stage_;
    switch (options_.kind) {
      case ScheduleKind::kGPipe:
        return options_.micro_batches;
      case ScheduleKind::k1F1B:
      case ScheduleKind::kZeroBubble:
        return stages_after;
      case ScheduleKind::kInterleaved1F1B:
        return 2 * stages_after + (options_.chunks - 1) * options_.stages;
    }
    return 0;
  }

  // The i-th of its kind. As many micro-batches as there are stages go through all chunks before
  // the next come; with one chunk that is the order of the micro-batches.
  void Add(Kind kind, int i) {
    const int round = options_.stages * options_.chunks;
    const int position = i % round / options_.stages;
    actions_.push_back({.kind = kind,
                        .chunk = kind == Kind::kForward ? position : options_.chunks - 1 - position,
                        .micro_batch = i / round * options_.stages + i % options_.stages,
                        .slot = 0});
  }

  const ScheduleOptions& options_;
  const int stage_;
  std::vector<PipelineAction> actions_;
};

// A chunk's slots.
struct ChunkSlots {
  int count = 0;
  std::priority_queue<int, std::vector<int>, std::greater<>> free = {};  // Of them; lowest first.
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

const char* Name(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::kGPipe:
      return "GPIPE";
    case ScheduleKind::k1F1B:
      return "ONE_F_ONE_B";
    case ScheduleKind::kInterleaved1F1B:
      return "INTERLEAVED_ONE_F_ONE_B";
    case ScheduleKind::kZeroBubble:
      return "ZERO_BUBBLE";
  }
  return "?";
}

std::string ToString(const PipelineAction& action) {
  constexpr const char* kNames[] = {"forward", "backward", "backward of inputs",
                                    "backward of weights"};
  return absl::StrCat(kNames[action.kind], " of chunk ", action.chunk, ", micro-batch ",
                      action.micro_batch, ", slot ", action.slot);
}

absl::Status ScheduleOptions::Validate() const {
  if (stages < 1) return Wanted(*this, "at least 1 stage", stages, "1");
  if (chunks < 1) return Wanted(*this, "at least 1 chunk a stage", chunks, "1");
  if (micro_batches < 1) return Wanted(*this, "at least 1 micro-batch", micro_batches, "1");
  if (kind != ScheduleKind::kInterleaved1F1B) {
    if (chunks == 1) return absl::OkStatus();
    return Wanted(*this, "1 chunk a stage", chunks,
                  absl::StrCat("1, or ", Name(ScheduleKind::kInterleaved1F1B)));
  }
  if (stages == 1) return Wanted(*this, "at least 2 stages", stages, "2");
  if (chunks == 1) return Wanted(*this, "at least 2 chunks a stage", chunks, "2");
  if (micro_batches % stages == 0) return absl::OkStatus();
  const int below = micro_batches / stages * stages;
  return Wanted(*this, absl::StrCat("micro-batches in a multiple of its ", stages, " stages"),
                micro_batches,
                absl::StrCat(below == 0 ? "" : absl::StrCat(below, " or "), below + stages));
}

std::vector<int> PlaceParts(const ScheduleOptions& options) {
  std::vector<int> stage_of(size_t(options.stages * options.chunks));
  for (size_t part = 0; part < stage_of.size(); ++part) stage_of[part] = int(part) % options.stages;
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
    stage.actions = StageActions(options, s).Make();
    AssignSlots(options, stage);
  }
  return schedule;
}

}  // namespace trainyard
