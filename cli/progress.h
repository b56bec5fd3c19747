// The lines that `watch` prints for a job's changes, on a terminal and elsewhere.

#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "cli/output.h"
#include "common/clock.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::cli {

bool IsTerminal(v1::JobState state);
std::string ShortState(v1::JobState state);  // "RUNNING"

// Returns the known parts of "step 120/200  loss 1.234  val 1.301  12.3k tok/s  MFU 34.5%  ETA
// 1m20s".
// While no attempt trains, the line says what the step is instead of how fast it was.
std::string ProgressLine(const v1::Job& job);
// Returns the job's best checkpoint with its validation loss. "": none is known.
std::string BestText(const v1::Job& job);
// Whether the job waits for its next attempt to train.
bool WaitsForAttempt(v1::JobState state);

// OK: the job succeeded. Otherwise an outcome error (exit code 3) that says how the job ended.
absl::Status Outcome(const v1::Job& job);

// Prints each change of a job. It prints a line for every new state or reason, except the end of a
// job that did not succeed, which Outcome describes. On a terminal it shows progress in place;
// elsewhere it prints at most one line in two seconds. With -o json or jsonl it prints every change
// as the API's message. If quiet, it prints nothing.
class ProgressPrinter {
 public:
  ProgressPrinter(const Clock& clock, Output& output) : clock_(clock), output_(output) {}
  void Show(const v1::Job& job);

 private:
  // Says once where a new attempt goes on.
  void ShowAttempt(const v1::Job& job);
  void ShowProgress(const v1::Job& job);
  void ShowEnd(const v1::Job& job);

  const Clock& clock_;
  Output& output_;
  std::string last_state_;
  uint64_t shown_step_ = 0;
  std::optional<uint64_t> attempt_;  // The newest that has said where it goes on; 0: none has.
  absl::Duration last_line_ = -absl::InfiniteDuration();
};

}  // namespace trainyard::cli
