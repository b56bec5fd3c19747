// What the reference of DPO says of the data: the log-probabilities of both answers of each pair by
// the parameters with which the run begins. They are computed once, before the first step, and kept
// in the run's directory (docs/adr/0033-preferences.md).

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/collective/collective.h"
#include "train/data/batch_reader.h"
#include "train/step/job_data.h"
#include "train/step/rank_engine.h"

namespace trainyard {

// Computes the numbers of all pairs by the parameters that the ranks have now, into
// splits.reference. All ranks call this together. Calls `progress` before each batch. Errors: those
// of reading samples, on the rank that has them.
struct ReferencePass {
  const JobConfig& job;
  const DataSplits& splits;
  const BatchShape& shape;  // Which samples this rank reads.
  RankEngine& engine;
  Collective& everyone;
  std::function<void()> progress;
};
absl::Status ComputeReference(const ReferencePass& pass);

// Fills `numbers`, two for each pair, from the bytes of a file DIR/epoch-E/reference, whose data
// have this digest of 64 hexadecimal digits. FAILED_PRECONDITION: the file is of other data.
// DATA_LOSS: it is no such file, or it is damaged. After an error `numbers` is as it was.
absl::Status ReadReference(absl::string_view bytes, absl::string_view digest,
                           std::vector<double>& numbers);

// The files DIR/epoch-E/reference of attempts.
struct ReferenceFiles {
  std::string directory;
  int64_t epoch = 0;  // Of this attempt, which writes its own.
  int64_t read_from =
      0;  // Of the attempt whose file has the numbers; 0: they are computed already.
};
// Takes the numbers from the file that an earlier attempt wrote, and writes that of this one. All
// ranks call this together, and return the same. The file has a digest of the data, and is written
// completely or not at all. FAILED_PRECONDITION: there is no file to read, or it is of other data.
// DATA_LOSS: it is damaged.
absl::Status KeepReference(const JobConfig& job, const JobData& data, const ReferenceFiles& files,
                           Collective& everyone);

}  // namespace trainyard
