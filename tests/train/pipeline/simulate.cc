#include "tests/train/pipeline/simulate.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "train/pipeline/message.h"

namespace trainyard {
namespace {

class Simulator {
 public:
  Simulator(const PipelineSchedule& schedule, const ActionTimes& times)
      : schedule_(schedule), times_(times) {
    out_.stages.resize(schedule.stages.size());
  }

  absl::StatusOr<Simulation> Run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (int s = 0; s < int(out_.stages.size()); ++s) {
        const size_t before = out_.stages[size_t(s)].actions.size();
        RETURN_IF_ERROR(RunUntilBlocked(s));
        progress |= out_.stages[size_t(s)].actions.size() > before;
      }
    }
    RETURN_IF_ERROR(CheckAllDone());
    Summarize();
    return std::move(out_);
  }

 private:
  struct InTransit {
    PipelineMessage message;
    double arrival;
  };

  absl::Status RunUntilBlocked(int stage) {
    const std::vector<PipelineAction>& actions = schedule_.stages[size_t(stage)].actions;
    std::vector<Simulation::Interval>& done = out_.stages[size_t(stage)].actions;
    while (done.size() < actions.size()) {
      const PipelineAction& action = actions[done.size()];
      double start = done.empty() ? 0 : done.back().end;
      if (const auto wanted = ReceiveBefore(schedule_, stage, action)) {
        std::deque<InTransit>& channel = channels_[wanted->channel()];
        if (channel.empty()) break;
        if (channel.front().message != *wanted) {
          return absl::FailedPreconditionError(
              absl::StrCat("stage ", stage, " wants the ", ToString(*wanted),
                           ", but the next message from stage ", wanted->from, " is the ",
                           ToString(channel.front().message)));
        }
        start = std::max(start, channel.front().arrival);
        channel.pop_front();
      }
      done.push_back({start, start + Duration(action.kind)});
      if (const auto sent = SendAfter(schedule_, stage, action)) {
        const double takes = sent->stays() ? 0 : times_.communication;
        channels_[sent->channel()].push_back({*sent, done.back().end + takes});
      }
    }
    return absl::OkStatus();
  }

  double Duration(PipelineAction::Kind kind) const {
    switch (kind) {
      case PipelineAction::kForward:
        return times_.forward;
      case PipelineAction::kBackward:
        return times_.backward_input + times_.backward_weight;
      case PipelineAction::kBackwardInput:
        return times_.backward_input;
      case PipelineAction::kBackwardWeight:
        return times_.backward_weight;
    }
    return 0;
  }

  absl::Status CheckAllDone() const {
    std::string waiting;
    for (size_t s = 0; s < out_.stages.size(); ++s) {
      const std::vector<PipelineAction>& actions = schedule_.stages[s].actions;
      const size_t done = out_.stages[s].actions.size();
      if (done == actions.size()) continue;
      absl::StrAppend(&waiting, waiting.empty() ? "" : "; ", "stage ", s, " waits to run action ",
                      done, " (", ToString(actions[done]), ")");
    }
    if (waiting.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat("the pipeline deadlocks: ", waiting));
  }

  void Summarize() {
    out_.makespan = 0;
    for (const Simulation::Stage& stage : out_.stages) {
      if (!stage.actions.empty()) out_.makespan = std::max(out_.makespan, stage.actions.back().end);
    }
    for (size_t s = 0; s < out_.stages.size(); ++s) {
      Simulation::Stage& stage = out_.stages[s];
      double busy = 0;
      int in_flight = 0;
      for (const PipelineAction& action : schedule_.stages[s].actions) {
        busy += Duration(action.kind);
        in_flight += action.kind == PipelineAction::kForward;
        stage.peak_in_flight = std::max(stage.peak_in_flight, in_flight);
        in_flight -= action.kind == PipelineAction::kBackward ||
                     action.kind == PipelineAction::kBackwardWeight;
      }
      stage.bubble = (out_.makespan - busy) / busy;
    }
  }

  const PipelineSchedule& schedule_;
  const ActionTimes& times_;
  std::map<std::tuple<int, int, int>, std::deque<InTransit>> channels_;
  Simulation out_{};
};

}  // namespace

absl::StatusOr<Simulation> Simulate(const PipelineSchedule& schedule, const ActionTimes& times) {
  return Simulator(schedule, times).Run();
}

}  // namespace trainyard
