#include "train/step/load_together.h"

#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "train/checkpoint/lineage.h"
#include "train/step/agree.h"
#include "train/step/snapshot.h"

namespace trainyard {
namespace {

constexpr char kBetweenPaths = '\0';  // No path has one.

// What a rank says of its own error.
using Explain = std::function<absl::Status(const absl::Status&)>;

absl::Status OfField(const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("init_from: ", status.message()));
}

absl::Status OfHost(const absl::Status& status) {
  // Of a later version: this host's program is too old.
  if (absl::IsUnimplemented(status)) return OfThisHost(absl::InternalError(status.message()));
  const bool unreadable = absl::IsInternal(status) || absl::IsPermissionDenied(status);
  return unreadable ? OfThisHost(status) : status;
}

absl::StatusOr<ChosenCheckpoint> LoadFirstGood(const std::vector<std::string>& candidates,
                                               LoadWhat what, const Explain& explain,
                                               const LoadingGang& gang) {
  const std::string joined =
      BroadcastText(gang.everyone, absl::StrJoin(candidates, std::string(1, kBetweenPaths)), 0);
  const std::vector<std::string> paths =
      joined.empty() ? std::vector<std::string>() : absl::StrSplit(joined, kBetweenPaths);
  const auto use = [&](const Checkpoint& checkpoint) -> absl::Status {
    RETURN_IF_ERROR(checkpoint.CheckModel(gang.model));
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
    return mine;
  });
}

}  // namespace

absl::StatusOr<ChosenCheckpoint> LoadNewest(const std::vector<std::string>& candidates,
                                            const LoadingGang& gang) {
  absl::StatusOr<ChosenCheckpoint> chosen =
      LoadFirstGood(candidates, LoadWhat::kEverything, OfHost, gang);
  if (absl::IsDataLoss(chosen.status())) return absl::InternalError(chosen.status().message());
  return chosen;
}

absl::StatusOr<ChosenCheckpoint> LoadInitFrom(const std::string& init_from,
                                              const LoadingGang& gang) {
  absl::StatusOr<std::vector<std::string>> candidates = std::vector<std::string>();
  if (gang.everyone.rank() == 0) candidates = FindCheckpoints(init_from, gang.roots);
  RETURN_IF_ERROR(AgreeOnStatus(gang.everyone, OfField(candidates.status())));
  return LoadFirstGood(*candidates, LoadWhat::kParameters, OfField, gang);
}

}  // namespace trainyard
