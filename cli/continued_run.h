// The run that `trainyard submit --continue` goes on with: that of a job, or of a checkpoint
// directory.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/client.h"
#include "cli/output.h"
#include "cli/spec.h"
#include "train/checkpoint/load.h"

namespace trainyard::cli {

class ContinuedRun {
 public:
  // `what` is a checkpoint directory that this program can read, or else the id of a job. Errors:
  // it is neither, the job has not ended, another job has the run, or there is no checkpoint.
  static absl::StatusOr<ContinuedRun> Find(const std::string& what, Client& client);

  // Returns the spec of a job that goes on with the run: that at `path`, or that of the run if
  // `path` is empty, with the changes `sets`. `allow` as in ContinuesConfig.
  absl::StatusOr<SpecDocument> Spec(const std::string& path, const std::vector<std::string>& sets,
                                    const std::vector<std::string>& allow) const;

  // Compares the spec with the run (train/config/continued_run.h), and notes each change. Returns
  // the changes that are refused, with their places in the spec. Another model.import is refused
  // here alone.
  absl::Status Compare(const SpecDocument& document, Output& output) const;

 private:
  static absl::StatusOr<ContinuedRun> OfJob(const v1::Job& job, Client& client);
  static absl::StatusOr<ContinuedRun> OfDirectory(const std::string& directory);

  std::string name_;                      // "job j-1", "directory runs/a".
  std::string job_;                       // The owner of the directory.
  uint64_t epoch_ = 0;                    // The newest attempt.
  int64_t done_ = 0;                      // Steps of the newest checkpoint that is known.
  std::string directory_;                 // As in specs.
  std::string spec_;                      // JSON. Empty: an earlier release has recorded none.
  std::optional<Checkpoint> checkpoint_;  // Of a directory.
};

}  // namespace trainyard::cli
