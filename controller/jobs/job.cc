#include "controller/jobs/job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace trainyard::controller {

absl::string_view Name(JobState state) {
  switch (state) {
    case JobState::kQueued:
      return "queued";
    case JobState::kStarting:
      return "starting";
    case JobState::kRunning:
      return "running";
    case JobState::kRecovering:
      return "recovering";
    case JobState::kStopping:
      return "stopping";
    case JobState::kSucceeded:
      return "succeeded";
    case JobState::kFailed:
      return "failed";
    case JobState::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

const Resume* SupersededBy(const std::vector<Resume>& resumes, uint64_t epoch, uint64_t step) {
  const auto successor = std::find_if(resumes.begin(), resumes.end(),
                                      [&](const Resume& resume) { return resume.epoch > epoch; });
  return successor == resumes.end() || step <= successor->step ? nullptr : &*successor;
}

void Job::Explain(std::string what, std::string what_comes) {
  state_reason = absl::StrCat(what, what_comes);
  happened = std::move(what);
  consequence = std::move(what_comes);
}

bool Job::AllRanksGone() const {
  return std::all_of(ranks.begin(), ranks.end(), [](const Rank& r) { return IsGone(r.phase); });
}

bool Job::Placeable() const {
  return state == JobState::kQueued || (state == JobState::kRecovering && AllRanksGone());
}

bool Job::IsOn(const std::string& worker_id) const {
  return std::any_of(ranks.begin(), ranks.end(), [&](const Rank& rank) {
    return rank.worker_id == worker_id && !IsGone(rank.phase);
  });
}

bool Job::WasOn(const std::string& worker_id) const {
  return earlier_workers.contains(worker_id) ||
         std::any_of(ranks.begin(), ranks.end(),
                     [&](const Rank& rank) { return rank.worker_id == worker_id; });
}

std::optional<uint64_t> Job::ContinuedFrom() const {
  if (spec->facts.continues.empty() || resumes.empty()) return std::nullopt;
  return resumes.front().step;
}

std::vector<BatchFrom> Job::Batches() const {
  const JobFacts& facts = spec->facts;
  BatchFrom own{.step = 0, .tokens = uint64_t{facts.global_batch} * facts.sequence};
  if (facts.continues.empty()) return {own};
  const std::optional<uint64_t> from = ContinuedFrom();
  if (earlier_batches.empty() || !from) return {};
  own.step = *from;
  std::vector<BatchFrom> batches = earlier_batches;
  // The checkpoint may be older than the last jobs' steps, which are then no part of this run.
  std::erase_if(batches, [&](const BatchFrom& batch) { return batch.step >= own.step; });
  batches.push_back(own);
  return batches;
}

std::optional<uint64_t> Job::TokensSeen() const {
  const std::vector<BatchFrom> batches = Batches();
  if (batches.empty()) return std::nullopt;
  uint64_t tokens = 0;
  for (size_t i = 0; i < batches.size(); ++i) {
    const uint64_t next = i + 1 < batches.size() ? batches[i + 1].step : progress.step;
    const uint64_t end = std::min(next, progress.step);
    if (end > batches[i].step) tokens += (end - batches[i].step) * batches[i].tokens;
  }
  return tokens;
}

void Progress::ResumeFrom(uint64_t resumed_step) {
  if (resumed_step == step) return;
  step = resumed_step;
  numbers.reset();
  validation_loss.reset();
  tokens_per_second = 0;
}

}  // namespace trainyard::controller
