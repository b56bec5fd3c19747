// The table of schedules. To add a schedule, add a row at the end of this file, and a function that
// orders the actions. Job specs take the names of the table.

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

// Returns the stage of a part. Neighbouring parts are on neighbouring stages, and the first stage
// follows the last. Source: Narayanan et al. 2021, arXiv:2104.04473, section 2.2.
int RoundAndRound(int part, int stages) { return part % stages; }

// Returns forward number `i` of all forwards of a stage, or backward number `i` of all backwards. A
// round has as many micro-batches as there are stages. All micro-batches of a round go through all
// chunks before the next round begins. With one chunk, this order is the order of the
// micro-batches.
PipelineAction InRounds(const ScheduleOptions& options, Kind kind, int i) {
  const int round = options.stages * options.chunks;
  const int position = i % round / options.stages;
  return {.kind = kind,
          .chunk = kind == Kind::kForward ? position : options.chunks - 1 - position,
          .micro_batch = i / round * options.stages + i % options.stages,
          .slot = 0};
}

// Returns a list in which, after `warmup` forwards, one forward and one backward alternate. If
// `late` is given, backward runs in halves, and the weight gradients are `late` micro-batches
// behind the input gradients.
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

// Runs all forwards, then all backwards. Source: Huang et al. 2019, arXiv:1811.06965.
std::vector<PipelineAction> GPipe(const ScheduleOptions& options, int /*stage*/) {
  return Alternate(options, options.micro_batches);
}

// Source: Narayanan et al. 2021, arXiv:2006.09503.
std::vector<PipelineAction> OneForwardOneBackward(const ScheduleOptions& options, int stage) {
  return Alternate(options, StagesAfter(options, stage));
}

// Alternates one forward and one backward over several chunks of a stage. Source: Narayanan et al.
// 2021, arXiv:2104.04473, section 2.2.2.
std::vector<PipelineAction> Interleaved(const ScheduleOptions& options, int stage) {
  return Alternate(options,
                   2 * StagesAfter(options, stage) + (options.chunks - 1) * options.stages);
}

// ZB-H1 of Qi et al. 2023, arXiv:2401.10241. Under 1F1B, stage s holds s micro-batches fewer than
// the first stage. Here the weight gradients of stage s are s micro-batches late, so memory is the
// same on all stages, and a stage computes these gradients when it would otherwise idle at the end.
std::vector<PipelineAction> ZeroBubble(const ScheduleOptions& options, int stage) {
  return Alternate(options, StagesAfter(options, stage), stage);
}

// Returns the stage of a part. Neighbouring parts are on neighbouring stages, there and back. With
// two chunks, the parts form a V.
int ThereAndBack(int part, int stages) {
  const int step = part % stages;
  return part / stages % 2 == 0 ? step : stages - 1 - step;
}

// A building block of a V: the times at which the actions of one micro-batch on a stage begin, by
// chunk. Each action takes one unit of time.
struct VBlock {
  int forward[2];
  int backward_input[2];
};

// Repeats a block for all micro-batches, each six units after the one before. The four actions of
// the block must begin at different times modulo six. A weight gradient takes the first free unit
// after its input gradient. Only the order of the times counts, because a stage runs each action as
// soon as it can. Source: Qi et al. 2024, arXiv:2405.15362.
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
// The forward of chunk 0 takes one unit a stage, and the forward of chunk 1, on the way back, two.
// The backward of chunk 1 takes one unit a stage, and the backward of chunk 0 two. So on every
// stage the two chunks together hold a micro-batch for 6 (p - 1) units and some waiting time. The
// activations of p - 1 chunks and a few more are in flight: for many stages about half of what 1F1B
// holds. The waiting times are chosen such that the actions of a stage begin at different times
// modulo six.
std::vector<PipelineAction> VHalf(const ScheduleOptions& options, int stage) {
  const int after = StagesAfter(options, stage), last = options.stages - 1;
  // The number is odd, so that on every stage, modulo six, the backward of chunk 1 is three units
  // behind the forward of chunk 0.
  const int odd_stages = options.stages | 1;
  return Repeat(
      options, {.forward = {stage, last + 2 + 2 * after},
                .backward_input = {3 * odd_stages + last + 1 + 2 * after, 3 * odd_stages + stage}});
}

// V-Min of Qi et al. 2024, arXiv:2405.15362.
//
// Forward and backward of both chunks take one unit a stage, there and back. So the two chunks of a
// stage together hold a micro-batch for 4 p units and some waiting time. For many stages, the
// activations in flight are about a third of what 1F1B holds.
std::vector<PipelineAction> VMin(const ScheduleOptions& options, int stage) {
  const int stages = options.stages, after = StagesAfter(options, stage);
  // The time at which the backward of chunk 1 begins on stage 0. The time must not be a multiple of
  // six, because the forwards of chunk 0 begin at these times.
  const int turn = 2 * stages + (stages % 3 == 0 ? 2 : 0);
  return Repeat(options, {.forward = {stage, stages + after},
                          .backward_input = {turn + stages + after, turn + stage}});
}

// V-ZB of Qi et al. 2024, arXiv:2405.15362.
//
// Forward and backward of both chunks take three units a stage, there and back. So the two chunks
// of a stage together hold a micro-batch for 12 p units: the activations of 2 p chunks are in
// flight, as many as 1F1B holds. This block gives the order of forwards and input gradients. A
// weight gradient runs only where a stage would wait otherwise: for another stage, or because it
// holds as much as the block does. To find these places, all stages run here, one unit at a time.
std::vector<PipelineAction> VZeroBubble(const ScheduleOptions& options, int stage) {
  struct Stage {
    std::vector<PipelineAction> order;         // Forwards and input gradients.
    int most[2];                               // Micro-batches that each chunk may hold.
    int held[2] = {0, 0};                      // Those that each chunk holds.
    std::vector<PipelineAction> actions = {};  // What has run.
    size_t next = 0;                           // In the order.
    size_t weight = 0;  // The first input gradient in the order whose weight gradient must run.
  };
  const int last = options.stages - 1, passages = 4 * options.stages;
  std::vector<Stage> stages;
  for (int s = 0; s <= last; ++s) {
    const int after = StagesAfter(options, s);
    stages.push_back({.order = Repeat(options, {.forward = {3 * s, 3 * last + 1 + 3 * after},
                                                .backward_input = {9 * last + 3 + 3 * after,
                                                                   6 * last + 2 + 3 * s}}),
                      .most = {last + 1 + after, s + 1}});
    std::erase_if(stages.back().order,
                  [](const auto& action) { return action.kind == Kind::kBackwardWeight; });
  }
  // A micro-batch passes all parts forward and then back. Has the number of micro-batches that have
  // made each of these passages.
  std::vector<int> passed(size_t(passages), 0);
  while (stages[size_t(stage)].actions.size() < size_t(6 * options.micro_batches)) {
    const std::vector<int> before = passed;
    bool idle = true;
    for (int s = 0; s <= last; ++s) {
      Stage& at = stages[size_t(s)];
      if (at.next < at.order.size()) {
        const PipelineAction& action = at.order[at.next];
        const bool forward = action.kind == Kind::kForward;
        const int part = action.chunk == 0 ? s : 2 * options.stages - 1 - s;
        const size_t passage = size_t(forward ? part : passages - 1 - part);
        int& held = at.held[action.chunk];
        const bool arrived = passage == 0 || before[passage - 1] > action.micro_batch;
        if (arrived && !(forward && held == at.most[action.chunk])) {
          at.actions.push_back(action);
          held += forward;
          ++passed[passage];
          ++at.next;
          idle = false;
          continue;
        }
      }
      while (at.weight < at.next && at.order[at.weight].kind == Kind::kForward) ++at.weight;
      if (at.weight == at.next) continue;
      PipelineAction& weight = at.actions.emplace_back(at.order[at.weight++]);
      weight.kind = Kind::kBackwardWeight;
      --at.held[weight.chunk];
      idle = false;
    }
    CHECK(!idle) << "the stages wait for each other, or for memory";
  }
  return stages[size_t(stage)].actions;
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
    {.name = "V_ZB",
     .least_chunks = 2,
     .most_chunks = 2,
     .split_backward = true,
     .stage_of = ThereAndBack,
     .actions = VZeroBubble},
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
