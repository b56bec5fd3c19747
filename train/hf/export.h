// Writes the parameters of a checkpoint as a Hugging Face model directory: config.json, tensors in
// shards of safetensors, and the tokenizer's files of the directory from which the model was
// imported, if it was.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "models/hf/safetensors.h"
#include "train/checkpoint/load.h"
#include "train/checkpoint/storage.h"

namespace trainyard {

struct ExportOptions {
  std::string to;  // Nothing may be there, or an empty directory.
  // The dtype of all tensors: F64, F32, BF16 or F16. Absent: that of the imported directory, or
  // that of the checkpoint if no imported directory is known.
  std::optional<HfDType> dtype = {};
  // Of a checkpoint with an adapter: writes the base with what the adapter adds. False: writes the
  // adapter alone (export_adapter.h).
  bool merge = false;
  // Of an adapter alone: the directory of its base, which PEFT loads if nobody names another.
  // Empty: none is known.
  std::string base = {};
  uint64_t shard_bytes = 5'000'000'000;  // A shard has at most so many bytes, or one tensor.
};

struct Exported {
  std::vector<std::string> files;  // Shards of tensors.
  uint64_t size_bytes = 0;         // Of the tensors.
  HfDType dtype = HfDType::kF32;   // Of most tensors.
  // What the checkpoint, or the one from which its job began, keeps of the imported directory.
  // Empty: no imported directory is known.
  std::string origin = {};
  std::vector<std::string> carried = {};
  // Keys of config.json that are not as in the imported directory: changed, added or left out.
  std::vector<std::string> changed_keys = {};
  std::vector<std::string> left = {};  // As PendingDirectory::left.
  // Of an adapter alone: its base has experts in NF4. bitsandbytes does not quantise those of
  // `transformers` 5, which keeps all experts of a layer as one parameter.
  bool experts_in_nf4 = false;
};

// If an error is returned, nothing was changed at `options.to`:
// - INVALID_ARGUMENT: options.merge does not suit the checkpoint; the family has no such form; or
//   names a field that config.json cannot express, a parameter that the checkpoint lacks, or one
//   with a number beyond the range of F16.
// - DATA_LOSS: the checkpoint is damaged.
// - FAILED_PRECONDITION: something is at `options.to`.
// - NOT_FOUND: the directory of `options.to` is not there.
absl::StatusOr<Exported> ExportHf(const Checkpoint& checkpoint, const ExportOptions& options,
                                  Storage& storage = LocalStorage());

}  // namespace trainyard
