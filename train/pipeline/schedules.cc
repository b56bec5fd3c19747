// The table of schedules. A new one is a row at the end of this file with the function that orders
// its actions, and a name in job.proto.

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "common/check.h"
#include "train/pipeline/schedule.h"

namespace trainyard {
namespace {

using Kind = PipelineAction::Kind;

// Narayanan et al. 2021, arXiv:2104.04473, section 2.2: neighbouring parts are on different stages,
// and the stage after the last is the first.
int RoundAndRound(int part, int stages) { return part % stages; }

// As many micro-batches as there are stages go through all chunks before the next come; with one
// chunk that is the order of the micro-batches. `i`: of all forwards, or of all backwards.
PipelineAction InRounds(const ScheduleOptions& options, Kind kind, int i) {
  const int round = options.stages * options.chunks;
  const int position = i % round / options.stages;
  return {.kind = kind,
          .chunk = kind == Kind::kForward ? position : options.chunks - 1 - position,
          .micro_batch = i / round * options.stages + i % options.stages,
          .slot = 0};
}

// After `warmup` forwards, one forward and one backward alternate. Given `late`, backward runs in
// halves, and weight gradients stay behind by so many micro-batches.
std::vector<PipelineAction> Alternate(const ScheduleOptions& options, int warmup,
                                      std::optional<int> late = std::nullopt) {
  const int total = options.chunks * options.micro_batches;
  std::vector<PipelineAction> actions;
  const auto add = [&](Kind kind, int i) { actions.push_back(InRounds(options, kind, i)); };
  for (int backwards = 0, forwards = 0; backwards < total; ++backwards) {
    while (forwards < std::min(warmup + backwards + 1, total)) add(Kind::kForward, forwards++);
    add(late ? Kind::kBackwardInput : Kind::kBackward, backwards);
    if (late && backwards >= *late) add(Kind::kBackwardWeight, backwards - *late);
  }
  for (int i = std::max(total - late.value_or(0), 0); i < total; ++i) {
    add(Kind::kBackwardWeight, i);
  }
  return actions;
}

int StagesAfter(const ScheduleOptions& options, int stage) { return options.stages - 1 - stage; }

// All forwards, then all backwards. Huang et al. 2019, arXiv:1811.06965.
std::vector<PipelineAction> GPipe(const ScheduleOptions& options, int /*stage*/) {
  return Alternate(options, options.micro_batches);
}

// Narayanan et al. 2021, arXiv:2006.09503.
std::vector<PipelineAction> OneForwardOneBackward(const ScheduleOptions& options, int stage) {
  return Alternate(options, StagesAfter(options, stage));
}

// The same over several chunks a stage. arXiv:2104.04473, section 2.2.2.
std::vector<PipelineAction> Interleaved(const ScheduleOptions& options, int stage) {
  return Alternate(options,
                   2 * StagesAfter(options, stage) + (options.chunks - 1) * options.stages);
}

// ZB-H1 of Qi et al. 2023, arXiv:2401.10241. Weight gradients stay behind by as many micro-batches
// as this stage has fewer in flight than the first: memory is the same on all stages, and the work
// is left for when others finish.
std::vector<PipelineAction> ZeroBubble(const ScheduleOptions& options, int stage) {
  return Alternate(options, StagesAfter(options, stage), stage);
}

// Neighbouring parts are on neighbouring stages, there and back: with two chunks, as a V.
int ThereAndBack(int part, int stages) {
  const int step = part % stages;
  return part / stages % 2 == 0 ? step : stages - 1 - step;
}

// A building block of a V: when one micro-batch's actions on a stage begin, by chunk. Each action
// takes one unit of time.
struct VBlock {
  int forward[2];
  int backward_input[2];
};

// Repeats a block for all micro-batches, each six units after the one before: Qi et al. 2024,
// arXiv:2405.15362. The four actions of the block begin at different units of the six. A weight
// gradient takes the first unit that is left behind its input gradient. Only the order of the times
// counts: a stage runs each action as soon as it can.
std::vector<PipelineAction> Repeat(const ScheduleOptions& options, const VBlock& block) {
  constexpr int kCycle = 6;
  std::map<int, PipelineAction> timed;
  const auto add = [&](int time, Kind kind, int chunk) {
    bool free = true;
    for (int i = 0; i < options.micro_batches; ++i) {
      free &= timed.emplace(time + i * kCycle, PipelineAction{kind, chunk, i, 0}).second;
    }
    CHECK(free) << "two actions of one of " << options.stages << " stages at " << time;
  };
  bool taken[kCycle] = {};
  for (const int chunk : {0, 1}) {
    add(block.forward[chunk], Kind::kForward, chunk);
    add(block.backward_input[chunk], Kind::kBackwardInput, chunk);
    taken[block.forward[chunk] % kCycle] = taken[block.backward_input[chunk] % kCycle] = true;
  }
  for (const int chunk : {1, 0}) {
    int time = block.backward_input[chunk] + 1;
    while (taken[time % kCycle]) ++time;
    taken[time % kCycle] = true;
    add(time, Kind::kBackwardWeight, chunk);
  }
  std::vector<PipelineAction> actions;
  for (const auto& [time, action] : timed) actions.push_back(action);
  return actions;
}

// V-Half of Qi et al. 2024, arXiv:2405.15362.
//
// Chunk 0's forward goes from stage to stage in one unit, and chunk 1's forward, on its way back,
// in two. Chunk 1's backward takes one unit a stage, and chunk 0's backward two. So on every stage
// the two chunks together hold a micro-batch for 6 (p - 1) units and some waiting. That makes
// (p - 1) chunks' activations in flight and a few more: for many stages about half of what 1F1B
// holds. The waiting is chosen such that the actions of a stage begin at different units of the
// six.
std::vector<PipelineAction> VHalf(const ScheduleOptions& options, int stage) {
  const int after = StagesAfter(options, stage), last = options.stages - 1;
  // Odd, so that chunk 1's backward is three units of six behind chunk 0's forward on every stage.
  const int odd_stages = options.stages | 1;
  return Repeat(
      options, {.forward = {stage, last + 2 + 2 * after},
                .backward_input = {3 * odd_stages + last + 1 + 2 * after, 3 * odd_stages + stage}});
}

// V-Min of Qi et al. 2024, arXiv:2405.15362.
//
// Forward and backward of both chunks take one unit a stage, there and back. So the two chunks of a
// stage together hold a micro-batch for 4 p units and some waiting: about a third of what 1F1B
// holds.
std::vector<PipelineAction> VMin(const ScheduleOptions& options, int stage) {
  const int stages = options.stages, after = StagesAfter(options, stage);
  // When chunk 1's backward begins on stage 0. A multiple of six is the unit of chunk 0's forward.
  const int turn = 2 * stages + (stages % 3 == 0 ? 2 : 0);
  return Repeat(options, {.forward = {stage, stages + after},
                          .backward_input = {turn + stages + after, turn + stage}});
}

constexpr int kAnyNumber = std::numeric_limits<int>::max();
constexpr ScheduleKind kSchedules[] = {
    {.name = "GPIPE", .stage_of = RoundAndRound, .actions = GPipe},
    {.name = "ONE_F_ONE_B", .stage_of = RoundAndRound, .actions = OneForwardOneBackward},
    {.name = "INTERLEAVED_ONE_F_ONE_B",
     .least_chunks = 2,
     .most_chunks = kAnyNumber,
     .whole_rounds = true,
     .stage_of = RoundAndRound,
     .actions = Interleaved},
    {.name = "ZERO_BUBBLE",
     .split_backward = true,
     .stage_of = RoundAndRound,
     .actions = ZeroBubble},
    {.name = "V_HALF",
     .least_chunks = 2,
     .most_chunks = 2,
     .split_backward = true,
     .stage_of = ThereAndBack,
     .actions = VHalf},
    {.name = "V_MIN",
     .least_chunks = 2,
     .most_chunks = 2,
     .split_backward = true,
     .stage_of = ThereAndBack,
     .actions = VMin},
};

}  // namespace

std::span<const ScheduleKind> AllSchedules() { return kSchedules; }

const ScheduleKind* FindSchedule(absl::string_view name) {
  const auto found = std::find_if(std::begin(kSchedules), std::end(kSchedules),
                                  [&](const ScheduleKind& kind) { return kind.name == name; });
  CHECK(found != std::end(kSchedules)) << "no schedule " << name;
  return found;
}

const ScheduleKind* DefaultSchedule(int64_t chunks) {
  return FindSchedule(chunks > 1 ? "INTERLEAVED_ONE_F_ONE_B" : "ONE_F_ONE_B");
}

}  // namespace trainyard
