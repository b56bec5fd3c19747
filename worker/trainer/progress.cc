#include "worker/trainer/progress.h"

#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace trainyard {

// The numbers by which people follow a run in its log. The record has all of them.
std::string ProgressLine(const StepRecord& record, int64_t num_steps, double mean_seconds) {
  std::string line =
      absl::StrFormat("step %d/%d | loss %.4f | grad norm %.3f | lr %.2e | ", record.step,
                      num_steps, record.loss, record.grad_norm, record.learning_rate);
  absl::StrAppendFormat(&line, "%.0f tokens/s | ", double(record.tokens) / record.seconds);
  if (record.mfu) absl::StrAppendFormat(&line, "MFU %.1f%% | ", 100 * *record.mfu);
  if (record.validation_loss) {
    absl::StrAppendFormat(&line, "validation loss %.4f | ", *record.validation_loss);
  }
  if (record.load_balancing_loss) {
    absl::StrAppendFormat(&line, "load balancing loss %.4f | ", *record.load_balancing_loss);
  }
  if (record.skipped) line += "not finite, not committed | ";
  const absl::Duration left =
      absl::Seconds(mean_seconds * double(num_steps - int64_t(record.step)));
  absl::StrAppendFormat(&line, "train_step_timing in s: %.4g | eta %s", record.seconds,
                        absl::FormatDuration(absl::Trunc(left, absl::Seconds(1))));
  return line;
}

}  // namespace trainyard
