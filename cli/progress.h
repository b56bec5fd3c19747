// What `watch` says of a job: which lines its changes make, on a terminal and elsewhere.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "cli/output.h"
#include "common/clock.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::cli {

bool IsTerminal(v1::JobState state);
std::string ShortState(v1::JobState state);  // "RUNNING"

// "step 120/200  loss 1.234  val 1.301  12.3k tok/s  MFU 34.5%  ETA 1m20s": what is known of it.
std::string ProgressLine(const v1::Progress& progress);

// OK if the job succeeded; otherwise an outcome error (exit code 3) that says how it ended.
absl::Status Outcome(const v1::Job& job);

// Turns each change of a job into output: a line for every new state or reason, but that of a job
// that did not succeed, which is for Outcome to say; progress in place on a terminal, and elsewhere
// as a line at most every two seconds. With -o json or jsonl, every
// change as the API's message. Quiet: none.
class ProgressPrinter {
 public:
  ProgressPrinter(const Clock& clock, Output& output) : clock_(clock), output_(output) {}
  void Show(const v1::Job& job);

 private:
  void ShowProgress(const v1::Job& job);
  void ShowEnd(const v1::Job& job);

  const Clock& clock_;
  Output& output_;
  std::string last_state_;
  uint64_t shown_step_ = 0;
  absl::Duration last_line_ = -absl::InfiniteDuration();
};

}  // namespace trainyard::cli
