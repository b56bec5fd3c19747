#include "controller/jobs/step_window.h"

#include <algorithm>

namespace trainyard::controller {
namespace {

// Some 20 MB: a worker that comes back first with an hour's steps, while another stays away.
constexpr size_t kMaxOpen = 65'536;

}  // namespace

StepWindow::StepWindow(const std::vector<StepRecord>& stored) {
  for (const StepRecord& step : stored) {
    epoch_ = std::max(epoch_, step.epoch);
    newest_ = std::max(newest_, step.step);
    if (!step.complete) open_.emplace(step.step, step);
  }
}

std::optional<StepRecord> StepWindow::Merge(const StepRecord& report, uint32_t rank,
                                            uint32_t world) {
  if (report.epoch < epoch_) return std::nullopt;
  if (report.epoch > epoch_) {
    epoch_ = report.epoch;
    newest_ = 0;
    open_.clear();
  }
  if (report.step <= newest_ && !open_.contains(report.step)) return std::nullopt;
  newest_ = std::max(newest_, report.step);
  StepRecord& step = open_[report.step];
  if (!MergeStep(step, report, rank, world)) return std::nullopt;
  StepRecord merged = step;
  if (merged.complete) open_.erase(report.step);
  if (open_.size() > kMaxOpen) open_.erase(open_.begin());
  return merged;
}

}  // namespace trainyard::controller
