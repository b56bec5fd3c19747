#include "train/start/load_import.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "train/checkpoint/lineage.h"
#include "train/step/agree.h"
#include "train/step/job_data.h"
#include "train/step/snapshot.h"

namespace trainyard {
namespace {

absl::StatusOr<ImportedParameters> LoadMine(const ModelChoice& choice, const LoadingGang& gang) {
  ASSIGN_OR_RETURN(const HfModel model,
                   HfModel::Open(choice.import_path, gang.roots, choice.ignore_keys));
  const std::optional<std::string> differs =
      FirstDifference(model.config, gang.model, MayDiffer::kAtStart);
  if (differs) {
    return absl::InvalidArgumentError(absl::StrCat(
        model.directory.path(), "/", kHfConfigName,
        ": another model than model.architecture: ", *differs,
        "; submit the spec without the architecture, which `trainyard submit` then adds"));
  }
  RETURN_IF_ERROR(LoadImported(model, gang.executable));
  ImportedParameters imported;
  ASSIGN_OR_RETURN(imported.files, FingerprintsOfImport(model.directory, gang.roots));
  if (gang.everyone.rank() != 0) return imported;
  LogInfo("imported", {{"directory", model.directory.path()}});
  ASSIGN_OR_RETURN(imported.kept, FilesToKeep(model, gang.roots));
  return imported;
}

}  // namespace

absl::StatusOr<ImportedParameters> LoadImport(const ModelChoice& choice, bool loaded_before,
                                              const LoadingGang& gang) {
  absl::StatusOr<ImportedParameters> imported = LoadMine(choice, gang);
  absl::Status mine = imported.status();
  // If rank 0 lacks the directory, too, all ranks get rank 0's error.
  if (absl::IsNotFound(mine) && gang.everyone.rank() != 0) {
    mine = absl::InternalError(absl::StrCat(mine.message(), ", and rank 0's host has it"));
  }
  if (!mine.ok()) {
    mine = absl::Status(mine.code(), absl::StrCat("model.import: ", mine.message()));
    if (loaded_before) mine = OfThisHost(mine);
  }
  RETURN_IF_ERROR(AgreeOnStatus(gang.everyone, mine));
  return imported;
}

}  // namespace trainyard
