#include "train/step/load_together.h"

#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "models/arch/registry.h"
#include "models/model.h"
#include "train/checkpoint/lineage.h"
#include "train/step/agree.h"
#include "train/step/snapshot.h"

namespace trainyard {
namespace {

constexpr char kBetweenPaths = '\0';  // No path has one.

// What a rank tells the others about its own error. A rank explains its error before the ranks
// agree on one, so that only the host of the rank with the error can be at fault.
using Explain = std::function<absl::Status(const absl::Status&)>;

absl::Status AsItIs(const absl::Status& status) { return status; }

// For a checkpoint that an earlier attempt could load. Errors that refuse one candidate stay
// (FirstGood): the earlier attempt may have loaded an older one for the same reason.
absl::Status OfHost(const absl::Status& status) {
  if (absl::IsUnimplemented(status)) return ProgramTooOld(status);
  const bool unreadable = absl::IsInternal(status) || absl::IsPermissionDenied(status);
  return unreadable ? OfThisHost(status) : status;
}

// Finds hosts that have different checkpoints at one path, for example because one host has seen a
// replacement and another has not. All ranks would read good bytes, but not of one checkpoint.
absl::Status CheckSameAsRank0(const Checkpoint& mine, Collective& everyone) {
  const std::string& sha256 = mine.manifest().sha256;
  if (BroadcastText(everyone, sha256, 0) == sha256) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      mine.path(), ": wanted the checkpoint that rank 0's host has there, found another one"));
}

absl::Status CheckShared(const Checkpoint& checkpoint, const ModelConfig& model) {
  const std::string& family = checkpoint.state().model.family();
  if (family != model.family()) {
    return absl::InvalidArgumentError(absl::StrCat(checkpoint.path(),
                                                   ": another model's checkpoint: family is ",
                                                   family, ", wanted ", model.family()));
  }
  if (CountShared(checkpoint, model).shared > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(checkpoint.path(), ": wanted some of the model's parameters, found none"));
}

absl::StatusOr<ChosenCheckpoint> LoadFirstGood(const std::vector<std::string>& candidates,
                                               LoadWhat what, const Explain& explain,
                                               const LoadingGang& gang) {
  const std::string joined =
      BroadcastText(gang.everyone, absl::StrJoin(candidates, std::string(1, kBetweenPaths)), 0);
  const std::vector<std::string> paths =
      joined.empty() ? std::vector<std::string>() : absl::StrSplit(joined, kBetweenPaths);
  const auto use = [&](const Checkpoint& checkpoint) -> absl::Status {
    RETURN_IF_ERROR(what == LoadWhat::kSharedParameters ? CheckShared(checkpoint, gang.model)
                                                        : checkpoint.CheckModel(gang.model));
    return LoadSnapshot(checkpoint, what, gang.executable);
  };
  return FirstGood(paths, [&](const std::string& path) -> absl::StatusOr<Checkpoint> {
    absl::StatusOr<Checkpoint> mine = ReadCheckpoint(path, gang.roots, use);
    absl::Status status = mine.status();
    // Where rank 0 lacks it as well, rank 0's error is the one that all ranks get.
    const bool lacks = absl::IsNotFound(status) || absl::IsFailedPrecondition(status);
    if (lacks && gang.everyone.rank() != 0) {
      status = absl::InternalError(absl::StrCat(status.message(), ", and rank 0's host has it"));
    }
    RETURN_IF_ERROR(AgreeOnStatus(gang.everyone, explain(status)));
    const absl::Status same = CheckSameAsRank0(*mine, gang.everyone);
    RETURN_IF_ERROR(AgreeOnStatus(gang.everyone, explain(same)));
    return mine;
  });
}

}  // namespace

SharedParameters CountShared(const Checkpoint& checkpoint, const ModelConfig& model) {
  SharedParameters count;
  const Program program = RecordInference(*CreateModel(model), {.sequence = 1});
  for (const ParameterBox& box : program.Parameters()) {
    ++count.of;
    count.shared += checkpoint.Find(box.name, TensorKind::kParameter) != nullptr;
  }
  return count;
}

absl::StatusOr<ChosenCheckpoint> LoadNewest(const std::vector<std::string>& candidates,
                                            const LoadingGang& gang) {
  absl::StatusOr<ChosenCheckpoint> chosen =
      LoadFirstGood(candidates, LoadWhat::kEverything, OfHost, gang);
  if (absl::IsDataLoss(chosen.status())) return absl::InternalError(chosen.status().message());
  return chosen;
}

absl::StatusOr<ChosenCheckpoint> LoadInitFrom(const InitFrom& init_from, bool loaded_before,
                                              const LoadingGang& gang) {
  absl::StatusOr<std::vector<std::string>> candidates = std::vector<std::string>();
  if (gang.everyone.rank() == 0) candidates = FindCheckpoints(init_from.path, gang.roots);
  const absl::Status& found = candidates.status();
  RETURN_IF_ERROR(AgreeOnStatus(gang.everyone, loaded_before ? OfThisHost(found) : found));
  absl::StatusOr<ChosenCheckpoint> chosen = LoadFirstGood(
      *candidates, init_from.subset ? LoadWhat::kSharedParameters : LoadWhat::kParameters,
      loaded_before ? OfHost : AsItIs, gang);
  // No rank knows whether other hosts could read one.
  if (loaded_before && absl::IsDataLoss(chosen.status())) return OfThisHost(chosen.status());
  return chosen;
}

}  // namespace trainyard
