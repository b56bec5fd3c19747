// Writes the adapter of a checkpoint as a directory that PEFT loads beside the base:
//
//   adapter_config.json          rank, alpha, the names of the layers
//   adapter_model.safetensors    the narrow matrices, and the modules that were trained as a whole

#pragma once

#include <vector>

#include "absl/status/status.h"
#include "models/arch/config.h"
#include "models/program/parameter.h"
#include "train/hf/export.h"

namespace trainyard {

// OK if PEFT loads an adapter that consists of these parameters. Otherwise an error that begins
// with the name of the first one that it would take for something else, and names --merge.
absl::Status CheckPeftLoads(const ModelConfig& model, const std::vector<ParameterSpec>& trained);

// The checkpoint must have an adapter (RunState::adapter). Options and errors are those of
// ExportHf; without a dtype, tensors have that of the checkpoint.
absl::StatusOr<Exported> ExportAdapter(const Checkpoint& checkpoint, const ExportOptions& options,
                                       Storage& storage);

}  // namespace trainyard
