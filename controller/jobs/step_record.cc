#include "controller/jobs/step_record.h"

#include <algorithm>
#include <bit>
#include <set>

#include "common/check.h"
#include "controller/jobs/job.h"

namespace trainyard::controller {

namespace {

void MergeGpu(GpuReading& all, const GpuReading& one) {
  for (const GpuNumber& row : kGpuNumbers) {
    std::optional<double>& number = all.*row.value;
    if (const auto more = one.*row.value) number = number ? row.join(*number, *more) : *more;
  }
  std::set<std::string> reasons(one.throttle_reasons.begin(), one.throttle_reasons.end());
  reasons.insert(all.throttle_reasons.begin(), all.throttle_reasons.end());
  all.throttle_reasons.assign(reasons.begin(), reasons.end());
}

}  // namespace

bool MergeStep(JobStep& record, const JobStep& report, uint32_t rank, uint32_t world) {
  CHECK(rank < world) << rank << " of " << world;
  const bool first = record.ranks_seen.empty() || report.epoch > record.epoch;
  if (!first && report.epoch < record.epoch) return false;
  // A step whose update was not committed is tried once more with the same number.
  if (!first && report.skipped && !record.skipped) return false;
  if (first || (record.skipped && !report.skipped)) {
    record = report;
    record.gpu = {};  // Merged below, as for every rank.
    record.collectives.clear();
    record.ranks_seen.assign((world + 7) / 8, '\0');
    record.complete = false;
  }
  char& byte = record.ranks_seen[rank / 8];
  const char bit = char(1 << rank % 8);
  if (byte & bit) return false;
  byte |= bit;
  MergeGpu(record.gpu, report.gpu);
  // Ranks in lockstep report the same seconds. The slowest rank is the one that waited least.
  if (report.seconds > record.seconds ||
      (report.seconds == record.seconds && report.phases.grad_sync < record.phases.grad_sync)) {
    record.seconds = report.seconds;
    record.phases = report.phases;
  }
  if (rank == 0) {
    const std::optional<double> validation_loss = record.validation_loss;
    static_cast<StepNumbers&>(record) = report;
    if (!record.validation_loss) record.validation_loss = validation_loss;
    record.tokens = report.tokens;
    record.skipped = report.skipped;
    record.model_flops = report.model_flops;
    record.generated = report.generated;
  } else if (!record.validation_loss) {
    record.validation_loss = report.validation_loss;
  }
  if (report.finish_time > record.finish_time) record.finish_time = report.finish_time;
  uint32_t seen = 0;
  for (const char c : record.ranks_seen) seen += uint32_t(std::popcount(uint8_t(c)));
  record.complete = seen == world;
  return true;
}

void NoteStep(const JobStep& record, Progress& progress) {
  progress.step = record.step;
  progress.furthest_step = std::max(progress.furthest_step, record.step);
  progress.numbers = record;
  // MFU is over the step's own seconds. With a mean over other seconds beside it, nobody could
  // compute the one from the other.
  progress.tokens_per_second = record.seconds > 0 ? double(record.tokens) / record.seconds : 0;
}

}  // namespace trainyard::controller
