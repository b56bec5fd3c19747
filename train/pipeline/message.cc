#include "train/pipeline/message.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace trainyard {
namespace {

// The message from part `from` to part `to`, if both exist.
std::optional<PipelineMessage> Crossing(const PipelineSchedule& schedule, int from, int to,
                                        int micro_batch) {
  const std::vector<int>& stage_of = schedule.stage_of;
  const int parts = int(stage_of.size());
  if (from < 0 || to < 0 || from >= parts || to >= parts) return std::nullopt;
  return PipelineMessage{
      .kind = from < to ? PipelineMessage::kActivation : PipelineMessage::kGradient,
      .from = stage_of[size_t(from)],
      .to = stage_of[size_t(to)],
      .part = to,
      .micro_batch = micro_batch};
}

}  // namespace

std::string ToString(const PipelineMessage& message) {
  return absl::StrCat(message.kind == PipelineMessage::kActivation ? "activation" : "gradient",
                      " for part ", message.part, ", micro-batch ", message.micro_batch);
}

std::optional<PipelineMessage> ReceiveBefore(const PipelineSchedule& schedule, int stage,
                                             const PipelineAction& action) {
  if (action.kind == PipelineAction::kBackwardWeight) return std::nullopt;
  const int part = schedule.PartOf(stage, action.chunk);
  const int source = action.kind == PipelineAction::kForward ? part - 1 : part + 1;
  return Crossing(schedule, source, part, action.micro_batch);
}

std::optional<PipelineMessage> SendAfter(const PipelineSchedule& schedule, int stage,
                                         const PipelineAction& action) {
  if (action.kind == PipelineAction::kBackwardWeight) return std::nullopt;
  const int part = schedule.PartOf(stage, action.chunk);
  const int target = action.kind == PipelineAction::kForward ? part + 1 : part - 1;
  return Crossing(schedule, part, target, action.micro_batch);
}

std::vector<std::vector<int>> ExpectedFrom(const PipelineSchedule& schedule, int stage) {
  const std::vector<PipelineAction>& actions = schedule.stages[size_t(stage)].actions;
  std::vector<std::vector<int>> expected(actions.size());
  std::map<std::pair<int, int>, int> free_from;  // By chunk and slot.
  std::map<int, int> last_from;                  // By sending stage.
  for (int i = 0; i < int(actions.size()); ++i) {
    int& free = free_from[{actions[size_t(i)].chunk, actions[size_t(i)].slot}];
    const auto message = ReceiveBefore(schedule, stage, actions[size_t(i)]);
    if (message && !message->stays()) {
      int& from = last_from[message->from];
      from = std::max(from, free);
      expected[size_t(from)].push_back(i);
    }
    free = i + 1;
  }
  return expected;
}

}  // namespace trainyard
