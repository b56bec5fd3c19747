// The job that an attempt trains, as text, kept beside its checkpoints: DIR/epoch-E/job.json. A job
// that continues the run is compared with the job that wrote the checkpoint, and a person can see
// what was trained.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "train/checkpoint/storage.h"

namespace trainyard {

inline constexpr char kRecordedJobName[] = "job.json";

struct RecordedJob {
  std::string job_id;
  std::string job;  // A JSON object (train/config/resolved_job.h).
};

// Returns the record of attempt `epoch`. Absent: an earlier release wrote none, or it is damaged,
// which is logged. UNIMPLEMENTED: a newer Trainyard wrote it. Other errors: it cannot be read.
absl::StatusOr<std::optional<RecordedJob>> ReadRecordedJob(const std::string& directory,
                                                           int64_t epoch);

// Returns the record of the attempt that wrote the checkpoint. Absent also if the path is not that
// of a job's checkpoint.
absl::StatusOr<std::optional<RecordedJob>> RecordedJobOf(const std::string& checkpoint);

// Writes the record of attempt `epoch`, which must have begun. The file is written completely or
// not at all, and is durable once this returns OK.
absl::Status WriteRecordedJob(const std::string& directory, int64_t epoch, const RecordedJob& job,
                              Storage& storage);

}  // namespace trainyard
