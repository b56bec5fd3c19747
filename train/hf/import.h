// Makes a checkpoint of a Hugging Face model directory. The checkpoint has parameters alone, in the
// directory's own dtype (f32 for F16), so that a job begins with them (init_from). One tensor is in
// memory at a time.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "models/arch/config.h"
#include "train/checkpoint/storage.h"

namespace trainyard {

struct Imported {
  ModelConfig model;
  uint64_t parameters = 0;
  uint64_t size_bytes = 0;             // Of the tensors in the checkpoint.
  std::vector<std::string> carried;    // Files of tokenizer and generation (carried_files.h).
  std::vector<std::string> left = {};  // As PendingDirectory::left.
};

// Reads the directory `from` and makes the checkpoint `to`, at which nothing may be, or an empty
// directory. If `to` is empty, checks all that an import would check and writes nothing. If an
// error is returned, nothing was changed:
// - NOT_FOUND: a file of the directory is missing, or the directory of `to`.
// - INVALID_ARGUMENT: names the key of config.json, or the tensor, that is not supported.
// - DATA_LOSS: names the file, and the tensor, that is damaged.
// - FAILED_PRECONDITION: something is at `to`.
absl::StatusOr<Imported> ImportHf(const std::string& from, const std::string& to,
                                  Storage& storage = LocalStorage());

}  // namespace trainyard
