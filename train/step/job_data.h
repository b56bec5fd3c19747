// Opens the files that a job reads, and takes their fingerprints (train/checkpoint/inputs.h), by
// which its later attempts know the files again.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/roots.h"
#include "models/hf/model_directory.h"
#include "models/program/input.h"
#include "train/checkpoint/inputs.h"
#include "train/config/job_config.h"
#include "train/data/dataset.h"

namespace trainyard {

struct JobData {
  std::string field;  // That names the files, for messages: "data.text.path".
  DataSplits splits;
  std::vector<InputFingerprint> files;  // Synthetic data have none.
};

// `open_lines`: as in DataOptions. Errors are those of OpenData (train/data/dataset.h); the message
// begins with the field.
absl::StatusOr<JobData> OpenJobData(const JobConfig& job, std::vector<InputSpec> inputs,
                                    const Roots& roots, OpenLineEncoding open_lines);

// Returns the path of a tokenizer that the job names. Where this host lacks it, that is the one
// which the job's checkpoints keep, if they keep it under the same name.
std::string TokenizerOrKept(const JobConfig& job, const std::string& tokenizer, const Roots& roots);

// Returns the path of the tokenizer that the newest checkpoint of the job keeps beside that of the
// imported model. "": there is none.
std::string NewestKeptTokenizer(const JobConfig& job, const Roots& roots);

// The global batches of a validation, which the job must have.
int64_t ValidationBatches(const JobConfig& job, const DataSplits& splits);

// Of the files of a directory that decide what a model imported from it computes: its
// configuration, its index and its shards.
absl::StatusOr<std::vector<InputFingerprint>> FingerprintsOfImport(const ModelDirectory& directory,
                                                                   const Roots& roots);

}  // namespace trainyard
