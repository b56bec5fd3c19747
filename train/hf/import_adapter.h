// Makes the directory of a run of an adapter that PEFT wrote and of its base, as if a job had
// trained the adapter and stopped:
//
//   TO/epoch-1/base/      the base, in the dtype of its directory (f32 for F16)
//   TO/epoch-1/step-0/    the adapter, and the modules that were trained as a whole
//
// A job goes on with it (init_from), and generate, evaluate, export and export --merge read it. One
// tensor is in memory at a time.

#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "train/checkpoint/storage.h"
#include "train/hf/import.h"
#include "train/hf/peft_config.h"

namespace trainyard {

struct ImportedAdapter {
  Imported imported;  // Of base and adapter together.
  PeftConfig config;
  LoraNumbers numbers;              // Of all layers (PeftDirectory::numbers).
  std::string base;                 // The directory that was read.
  uint64_t trained_parameters = 0;  // Numbers of the adapter and its modules.
  std::set<std::string> trained;    // The names of their parameters.
};

// `options.from` is the directory that PEFT wrote, with adapter_config.json, and `base` that of the
// model that it belongs to; empty: the one that adapter_config.json names. `options.ignored` is for
// the base. If an error is returned, nothing was changed:
// - NOT_FOUND: a file or the directory of the base is missing, or the directory of `to`.
// - INVALID_ARGUMENT: names the key of adapter_config.json, or the tensor, and what was wanted; or
//   as ImportHf for the base.
// - DATA_LOSS: names the file, and the tensor, that is damaged.
// - FAILED_PRECONDITION: something is at `to`.
absl::StatusOr<ImportedAdapter> ImportAdapter(const ImportOptions& options, const std::string& base,
                                              Storage& storage = LocalStorage());

}  // namespace trainyard
