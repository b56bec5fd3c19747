#include "train/pipeline/message.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace trainyard {
namespace {

// The message that crosses from part `from` to part `to`, where both exist.
std::optional<PipelineMessage> Crossing(const ScheduleOptions& options, int from, int to,
                                        int micro_batch) {
  const int parts = options.stages * options.chunks;
  if (from < 0 || to < 0 || from >= parts || to >= parts) return std::nullopt;
  return PipelineMessage{
      .kind = from < to ? PipelineMessage::kActivation : PipelineMessage::kGradient,
      .from = from % options.stages,
      .to = to % options.stages,
      .part = to,
      .micro_batch = micro_batch};
}

}  // namespace

std::string ToString(const PipelineMessage& message) {
  return absl::StrCat(message.kind == PipelineMessage::kActivation ? "activation" : "gradient",
                      " for part ", message.part, ", micro-batch ", message.micro_batch);
}

std::optional<PipelineMessage> ReceiveBefore(const ScheduleOptions& options, int stage,
                                             const PipelineAction& action) {
  if (action.kind == PipelineAction::kBackwardWeight) return std::nullopt;
  const int part = action.chunk * options.stages + stage;
  const int source = action.kind == PipelineAction::kForward ? part - 1 : part + 1;
  return Crossing(options, source, part, action.micro_batch);
}

std::optional<PipelineMessage> SendAfter(const ScheduleOptions& options, int stage,
                                         const PipelineAction& action) {
  if (action.kind == PipelineAction::kBackwardWeight) return std::nullopt;
  const int part = action.chunk * options.stages + stage;
  const int target = action.kind == PipelineAction::kForward ? part + 1 : part - 1;
  return Crossing(options, part, target, action.micro_batch);
}

std::vector<std::vector<int>> ExpectedFrom(const PipelineSchedule& schedule, int stage) {
  const std::vector<PipelineAction>& actions = schedule.stages[size_t(stage)].actions;
  std::vector<std::vector<int>> expected(actions.size());
  std::map<std::pair<int, int>, int> free_from;  // By chunk and slot.
  std::map<int, int> last_from;                  // By the stage that sends.
  for (int i = 0; i < int(actions.size()); ++i) {
    int& free = free_from[{actions[size_t(i)].chunk, actions[size_t(i)].slot}];
    if (const auto message = ReceiveBefore(schedule.options, stage, actions[size_t(i)])) {
      int& from = last_from[message->from];
      from = std::max(from, free);
      expected[size_t(from)].push_back(i);
    }
    free = i + 1;
  }
  return expected;
}

}  // namespace trainyard
