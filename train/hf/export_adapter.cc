#include "train/hf/export_adapter.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "models/hf/config.h"
#include "models/program/amax_history.h"
#include "models/program/low_rank.h"
#include "models/program/nf4.h"
#include "train/hf/carried_files.h"
#include "train/hf/peft_config.h"
#include "train/hf/peft_names.h"
#include "train/hf/pending_directory.h"
#include "train/hf/tensor_writer.h"

namespace trainyard {
namespace {

// What an export can do that an adapter alone cannot.
absl::Status NeedsMerge(const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(status.message(), "; --merge writes the whole model"));
}

absl::StatusOr<PeftTensors> ReadAdapter(const Checkpoint& checkpoint, const HfTable& table) {
  std::vector<TrainedParameter> trained;
  for (const StoredTensor& stored : checkpoint.manifest().tensors) {
    if (stored.kind != TensorKind::kParameter || IsNameOfHistory(stored.name)) continue;
    trained.push_back({stored.name, stored.shape});
  }
  absl::StatusOr<PeftTensors> placed = PeftNames(checkpoint.state().model, table).Place(trained);
  if (placed.ok()) return placed;
  const absl::Status status = NeedsMerge(placed.status());
  return absl::Status(status.code(), absl::StrCat(checkpoint.path(), ": ", status.message()));
}

// The tensors with the dtype that each has in the file.
std::vector<ExportTensor> WithDTypes(const Checkpoint& checkpoint, std::vector<HfLayout> layouts,
                                     std::optional<HfDType> dtype) {
  std::vector<ExportTensor> tensors;
  for (HfLayout& layout : layouts) {
    const std::string& first = layout.parameters.front().name;
    const StoredTensor& stored = *checkpoint.Find(first, TensorKind::kParameter);
    tensors.push_back(
        {.layout = std::move(layout), .dtype = dtype.value_or(HfDTypeOf(stored.dtype))});
  }
  return tensors;
}

bool HasExpertsInNf4(const Checkpoint& checkpoint) {
  if (checkpoint.base() == nullptr) return false;
  const std::vector<StoredTensor>& tensors = checkpoint.base()->tensors;
  return std::any_of(tensors.begin(), tensors.end(), [](const StoredTensor& tensor) {
    return !ExpertPartOf(WeightInNf4(tensor.name)).empty();
  });
}

}  // namespace

absl::Status CheckPeftLoads(const ModelConfig& model, const std::vector<ParameterSpec>& trained) {
  ASSIGN_OR_RETURN(const HfTable* const table, FindHfTable(model));
  const PeftNames names(model, *table);
  for (const ParameterSpec& spec : trained) RETURN_IF_ERROR(NeedsMerge(names.Check(spec)));
  return absl::OkStatus();
}

absl::StatusOr<Exported> ExportAdapter(const Checkpoint& checkpoint, const ExportOptions& options,
                                       Storage& storage) {
  ASSIGN_OR_RETURN(const HfTable* const table, FindHfTable(checkpoint.state().model));
  ASSIGN_OR_RETURN(const std::optional<HfOrigin> origin, FindOrigin(checkpoint.path()));
  ASSIGN_OR_RETURN(const PeftTensors adapter, ReadAdapter(checkpoint, *table));
  const std::vector<ExportTensor> tensors = WithDTypes(checkpoint, adapter.tensors, options.dtype);
  ASSIGN_OR_RETURN(PendingDirectory pending, PendingDirectory::Create(options.to, storage));
  Exported exported;
  exported.files = {kAdapterWeightsName};
  exported.dtype = tensors.front().dtype;
  for (const ExportTensor& tensor : tensors) exported.size_bytes += tensor.entry().bytes();
  RETURN_IF_ERROR(TensorWriter(checkpoint, storage)
                      .WriteFile(absl::StrCat(pending.path(), "/", kAdapterWeightsName), tensors));
  const PeftConfigJson config = {.numbers = *checkpoint.state().adapter,
                                 .targets = adapter.targets,
                                 .saved = adapter.saved,
                                 .parameters = adapter.parameters,
                                 .transposed = adapter.transposed,
                                 .base = options.base};
  RETURN_IF_ERROR(
      WriteFile(absl::StrCat(pending.path(), "/", kAdapterConfigName), ToJson(config), storage));
  if (origin) exported.origin = origin->path;
  ASSIGN_OR_RETURN(exported.carried,
                   WriteCarried(checkpoint.path(), origin, pending.path(), storage));
  exported.left = pending.left();
  exported.experts_in_nf4 = HasExpertsInNf4(checkpoint);
  RETURN_IF_ERROR(pending.Commit());
  return exported;
}

}  // namespace trainyard
