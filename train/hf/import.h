// Makes a checkpoint of a Hugging Face model directory. The checkpoint has parameters alone, in the
// directory's own dtype (f32 for F16), so that a job begins with them (init_from). One tensor is in
// memory at a time.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "models/arch/config.h"
#include "models/hf/model.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/storage.h"

namespace trainyard {

struct Imported {
  ModelConfig model;
  uint64_t parameters = 0;
  uint64_t size_bytes = 0;             // Of the tensors in the checkpoint.
  std::vector<std::string> carried;    // Files of tokenizer and generation (carried_files.h).
  std::vector<std::string> left = {};  // As PendingDirectory::left.
};

struct ImportOptions {
  std::string from;  // The directory.
  // The checkpoint, at which nothing may be, or an empty directory. Empty: nothing is written, and
  // everything is checked that an import would check.
  std::string to = {};
  std::vector<std::string> ignored = {};  // As of ConfigFromHf.
};

// What the manifest of an import says of its run.
RunState ImportedState(const HfModel& model);

// Reads the directory and makes the checkpoint. If an error is returned, nothing was changed:
// - NOT_FOUND: a file of the directory is missing, or the directory of `to`.
// - INVALID_ARGUMENT: names the key of config.json, or the tensor, that is not supported, or the
//   tensor and the place of a number that is not finite.
// - DATA_LOSS: names the file, and the tensor, that is damaged.
// - FAILED_PRECONDITION: something is at `to`.
absl::StatusOr<Imported> ImportHf(const ImportOptions& options, Storage& storage = LocalStorage());

}  // namespace trainyard
