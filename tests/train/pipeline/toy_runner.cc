#include "tests/train/pipeline/toy_runner.h"

#include <deque>
#include <map>

#include "train/pipeline/message.h"

namespace trainyard::testing {
namespace {

uint64_t ModelInput(int micro_batch) { return uint64_t(micro_batch) * 1000 + 3; }
uint64_t LossGradient(int micro_batch) { return uint64_t(micro_batch) * 10 + 7; }
uint64_t Output(size_t part, uint64_t x) { return 2 * x * x + (2 * part + 3) * x; }
uint64_t InputGradient(size_t part, uint64_t x, uint64_t dy) { return dy * (4 * x + 2 * part + 3); }

class ToyRunner {
 public:
  explicit ToyRunner(const PipelineSchedule& schedule)
      : schedule_(schedule), next_(schedule.stages.size()), out_(schedule.options) {}

  std::optional<ToyGradients> Run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t s = 0; s < next_.size(); ++s) {
        while (next_[s] < schedule_.stages[s].actions.size() && Step(int(s))) progress = true;
      }
    }
    for (size_t s = 0; s < next_.size(); ++s) {
      if (next_[s] < schedule_.stages[s].actions.size()) return std::nullopt;
    }
    for (const auto& [pair, queue] : queues_) {
      if (!queue.empty()) return std::nullopt;
    }
    return out_;
  }

 private:
  struct Slot {
    uint64_t x = 0;
    uint64_t dy = 0;
  };

  // Runs the stage's next action, or returns false because it cannot.
  bool Step(int stage) {
    const PipelineSchedule::Stage& list = schedule_.stages[size_t(stage)];
    const PipelineAction& action = list.actions[next_[size_t(stage)]];
    if (action.slot < 0 || action.slot >= list.slots[size_t(action.chunk)]) return false;
    uint64_t received = action.kind == PipelineAction::kForward ? ModelInput(action.micro_batch)
                                                                : LossGradient(action.micro_batch);
    if (const auto message = ReceiveBefore(schedule_, stage, action)) {
      std::deque<uint64_t>& queue = queues_[message->channel()];
      if (queue.empty()) return false;
      received = queue.front();
      queue.pop_front();
    }
    const uint64_t sent = Compute(stage, action, received);
    if (const auto message = SendAfter(schedule_, stage, action)) {
      queues_[message->channel()].push_back(sent);
    }
    ++next_[size_t(stage)];
    return true;
  }

  uint64_t Compute(int stage, const PipelineAction& action, uint64_t received) {
    const size_t part = size_t(schedule_.PartOf(stage, action.chunk));
    Slot& slot = memory_[{part, action.slot}];
    const int i = action.micro_batch;
    if (action.kind == PipelineAction::kForward) {
      slot = {.x = received, .dy = 0};
      return out_.outputs[part].emplace_back(i, Output(part, slot.x)).second;
    }
    if (action.kind != PipelineAction::kBackwardWeight) {
      slot.dy = received;
      out_.inputs[part].emplace_back(i, InputGradient(part, slot.x, slot.dy));
    }
    if (action.kind != PipelineAction::kBackwardInput) {
      out_.weights[part].emplace_back(i, slot.dy * slot.x);
    }
    return action.kind == PipelineAction::kBackwardWeight ? 0 : out_.inputs[part].back().second;
  }

  const PipelineSchedule& schedule_;
  std::vector<size_t> next_;                                          // Action of each stage.
  std::map<std::pair<size_t, int>, Slot> memory_;                     // By part and slot.
  std::map<std::tuple<int, int, int>, std::deque<uint64_t>> queues_;  // By channel.
  ToyGradients out_;
};

}  // namespace

ToyGradients::ToyGradients(const ScheduleOptions& options)
    : outputs(size_t(options.stages * options.chunks)), inputs(outputs), weights(outputs) {}

ToyGradients ExpectedGradients(const ScheduleOptions& options) {
  ToyGradients out(options);
  const size_t parts = out.outputs.size();
  for (int i = 0; i < options.micro_batches; ++i) {
    std::vector<uint64_t> x = {ModelInput(i)};
    for (size_t part = 0; part < parts; ++part) {
      x.push_back(out.outputs[part].emplace_back(i, Output(part, x[part])).second);
    }
    uint64_t dy = LossGradient(i);
    for (size_t part = parts; part-- > 0;) {
      out.weights[part].emplace_back(i, dy * x[part]);
      dy = out.inputs[part].emplace_back(i, InputGradient(part, x[part], dy)).second;
    }
  }
  return out;
}

std::optional<ToyGradients> RunSchedule(const PipelineSchedule& schedule) {
  return ToyRunner(schedule).Run();
}

}  // namespace trainyard::testing
