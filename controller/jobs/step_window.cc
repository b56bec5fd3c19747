#include "controller/jobs/step_window.h"

#include <algorithm>

namespace trainyard::controller {
namespace {

// About 30 MB. Enough for a worker that comes back with an hour's steps while another is still
// away.
constexpr size_t kMaxOpen = 65'536;

}  // namespace

StepWindow::StepWindow(const std::vector<JobStep>& stored, uint64_t epoch) : epoch_(epoch) {
  for (const JobStep& step : stored) {
    epoch_ = std::max(epoch_, step.epoch.value_or(0));
    newest_ = std::max(newest_, step.step);
    if (!step.complete) open_.emplace(step.step, step);
  }
}

void StepWindow::Resume(uint64_t epoch, uint64_t known_up_to, uint64_t step) {
  if (epoch < epoch_) return;
  if (epoch > epoch_) {
    epoch_ = epoch;
    open_.erase(open_.upper_bound(step), open_.end());
    newest_ = std::min(newest_, step);
  }
  const uint64_t from = std::min({known_up_to, step, newest_});
  newest_ = std::max(newest_, step);
  // Other ranks may have reported first. Their reports are of this attempt and stay.
  for (uint64_t s = newest_ - from > kMaxOpen ? newest_ - kMaxOpen : from; s++ < newest_;) {
    JobStep& open = open_[s];
    if (open.epoch != epoch) open = JobStep{};
    open.step = s;
  }
  Trim();
}

void StepWindow::SkipTo(uint64_t step) {
  open_.erase(open_.begin(), open_.upper_bound(step));
  newest_ = std::max(newest_, step);
}

void StepWindow::Trim() {
  while (open_.size() > kMaxOpen) open_.erase(open_.begin());
}

JobStep* StepWindow::Open(uint64_t epoch, uint64_t step) {
  if (epoch > epoch_) {
    epoch_ = epoch;
    open_.erase(open_.lower_bound(step), open_.end());
    newest_ = std::min(newest_, step - 1);
  }
  if (step > newest_) {
    if (epoch < epoch_) return nullptr;
    const uint64_t first = step - newest_ > kMaxOpen ? step - kMaxOpen : newest_ + 1;
    for (uint64_t missing = first; missing < step; ++missing) open_[missing].step = missing;
    newest_ = step;
    open_[step].step = step;
  }
  const auto found = open_.find(step);
  return found == open_.end() ? nullptr : &found->second;
}

std::optional<JobStep> StepWindow::Merge(const JobStep& report, uint32_t rank, uint32_t world) {
  JobStep* step = report.step == 0 ? nullptr : Open(report.epoch.value_or(0), report.step);
  if (step == nullptr || !MergeStep(*step, report, rank, world)) return std::nullopt;
  JobStep merged = *step;
  if (merged.complete) open_.erase(report.step);
  Trim();
  return merged;
}

std::optional<JobStep> StepWindow::MergeWhole(const JobStep& report, uint32_t world) {
  if (report.step == 0 || Open(report.epoch.value_or(0), report.step) == nullptr)
    return std::nullopt;
  open_.erase(report.step);
  JobStep whole = report;
  whole.collectives.clear();
  whole.complete = true;
  whole.ranks_seen.assign((world + 7) / 8, '\xff');
  return whole;
}

uint64_t StepWindow::complete_up_to() const {
  return open_.empty() ? newest_ : open_.begin()->first - 1;
}

}  // namespace trainyard::controller
