#include "train/hf/import.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/build_info.h"
#include "common/status_macros.h"
#include "models/hf/model.h"
#include "train/checkpoint/save.h"
#include "train/hf/carried_files.h"
#include "train/hf/copy_parameters.h"
#include "train/hf/pending_directory.h"

namespace trainyard {

RunState ImportedState(const HfModel& model) {
  const std::vector<HfWeight>& weights = model.weights.all();
  return {.job_id = "import",
          .model = model.config,
          .layout = {},
          .bf16_weights = std::all_of(weights.begin(), weights.end(),
                                      [](const HfWeight& weight) {
                                        return weight.layout.shape.size() < 2 ||
                                               weight.dtype == DType::kBF16;
                                      }),
          .build = absl::StrCat(Version(), "+", Revision())};
}

absl::StatusOr<Imported> ImportHf(const ImportOptions& options, Storage& storage) {
  const std::string& to = options.to;
  if (!to.empty()) RETURN_IF_ERROR(PendingDirectory::Check(to));  // Reading may take long.
  ASSIGN_OR_RETURN(const HfModel model, HfModel::Open(options.from, Roots(), options.ignored));
  ASSIGN_OR_RETURN(const KeptFiles kept, FilesToKeep(model));
  Imported imported{.model = model.config, .carried = CarriedOf(kept)};
  for (const HfWeight& weight : model.weights.all()) {
    imported.parameters += uint64_t(weight.layout.slice_elements() * weight.layout.slices());
  }
  if (to.empty()) {
    RETURN_IF_ERROR(CopyParameters(model.weights, {}, nullptr));
    return imported;
  }
  ASSIGN_OR_RETURN(PendingDirectory pending, PendingDirectory::Create(to, storage));
  ASSIGN_OR_RETURN(RankWriter writer, RankWriter::Create(pending.path(), /*rank=*/0, storage));
  RETURN_IF_ERROR(CopyParameters(model.weights, {}, &writer));
  ASSIGN_OR_RETURN(std::vector<StoredTensor> written, writer.Finish());
  RETURN_IF_ERROR(WriteKept(kept, pending.path(), storage));
  ASSIGN_OR_RETURN(const Manifest manifest,
                   CommitAlone(pending.path(), ImportedState(model), std::move(written), storage));
  imported.size_bytes = manifest.size_bytes();
  imported.left = pending.left();
  RETURN_IF_ERROR(pending.Commit());
  return imported;
}

}  // namespace trainyard
