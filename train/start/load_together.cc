#include "train/start/load_together.h"

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

constexpr int kMostTries = 5;
constexpr char kBetweenPaths = '\0';  // No path contains this character.

// Turns a rank's own error into the one that it sends to the others. A rank explains its error
// before the ranks agree on one, so that only the host of the rank with the error can be at fault.
using Explain = std::function<absl::Status(const absl::Status&)>;

absl::Status AsItIs(const absl::Status& status) { return status; }

// Explains an error about a checkpoint that an earlier attempt could load. Errors that refuse one
// candidate (FirstGood) are returned unchanged: the earlier attempt may have loaded an older
// candidate for the same reason.
absl::Status OfHost(const absl::Status& status) {
  if (absl::IsUnimplemented(status)) return ProgramTooOld(status);
  const bool unreadable = absl::IsInternal(status) || absl::IsPermissionDenied(status);
  return unreadable ? OfThisHost(status) : status;
}

// Finds hosts that have different checkpoints at one path, for example because only one of them has
// seen a replacement. All ranks would read good bytes, but not those of one checkpoint.
absl::Status CheckSameAsRank0(const Checkpoint& mine, Collective& everyone) {
  const std::string& sha256 = mine.manifest().sha256;
  if (BroadcastText(everyone, sha256, 0) == sha256) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      mine.path(), ": wanted the checkpoint that rank 0's host has there, found another one"));
}

absl::StatusOr<ChosenCheckpoint> LoadFirstGood(const std::vector<std::string>& candidates,
                                               const UseCheckpoint& use, const Explain& explain,
                                               const LoadingGang& gang) {
  const std::string joined =
      BroadcastText(gang.everyone, absl::StrJoin(candidates, std::string(1, kBetweenPaths)), 0);
  const std::vector<std::string> paths =
      joined.empty() ? std::vector<std::string>() : absl::StrSplit(joined, kBetweenPaths);
  return FirstGood(paths, [&](const std::string& path) -> absl::StatusOr<Checkpoint> {
    absl::StatusOr<Checkpoint> mine = ReadCheckpoint(path, gang.roots, use);
    absl::Status status = mine.status();
    // If rank 0 lacks it, too, all ranks get rank 0's error.
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

// Returns the names of all ranks, on rank 0.
std::set<std::string> UnionOf(const std::set<std::string>& mine, Collective& everyone) {
  std::set<std::string> all;
  for (const std::string& text : GatherText(everyone, absl::StrJoin(mine, "\n"), 0)) {
    for (absl::string_view name : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      all.emplace(name);
    }
  }
  return all;
}

std::set<std::string> NamesOf(const Executable& executable) {
  std::set<std::string> names;
  for (const ParameterBox& box : executable.program().OwnedParameters()) {
    if (box.state != StateRule::AmaxHistory()) names.insert(box.name);
  }
  for (const ParameterBox& box : executable.program().FrozenParameters()) names.insert(box.name);
  return names;
}

// Returns the candidates on rank 0, and none on other ranks.
absl::StatusOr<std::vector<std::string>> CandidatesOf(const InitFrom& from,
                                                      const LoadingGang& gang) {
  if (gang.everyone.rank() != 0) return std::vector<std::string>();
  if (!from.taken) return FindCheckpoints(from.path, gang.roots);
  const std::string& path = from.taken->path;
  const absl::Status found = gang.roots.FindDirectory(path).status();
  if (absl::IsNotFound(found) && FindNamed(from.path, gang.roots).ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": wanted the checkpoint that the job began with, found it removed from ", from.path,
        "; submit the job again, or name a checkpoint that stays"));
  }
  RETURN_IF_ERROR(found);
  return std::vector<std::string>{path};
}

absl::Status CheckTaken(const InitFrom& from, const Checkpoint& checkpoint) {
  if (!from.taken || checkpoint.manifest().sha256 == from.taken->sha256) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      checkpoint.path(), ": wanted the checkpoint that the job began with, manifest_sha256 ",
      from.taken->sha256, ", found another one in its place, ", checkpoint.manifest().sha256,
      "; submit the job again, or name a checkpoint that stays"));
}

std::string ToString(const std::optional<LoraNumbers>& adapter) {
  if (!adapter) return "none";
  return absl::StrCat("rank ", adapter->rank, ", alpha ", adapter->alpha,
                      adapter->rslora ? ", rslora" : "", adapter->dora ? ", dora" : "",
                      adapter->nf4 ? absl::StrCat(", base in NF4 for ", Name(*adapter->nf4)) : "");
}

// A job must not leave out what the checkpoint adds to the base: its adapter has the same numbers
// (CheckAdapter) and the same layers (CheckTargets). `names` are all parameters of the job.
absl::Status CheckTargets(const Checkpoint& checkpoint, const std::set<std::string>& names) {
  for (const StoredTensor& tensor : checkpoint.manifest().tensors) {
    if (!IsLowRank(tensor.name) || names.contains(tensor.name)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        checkpoint.path(), ": wanted adapters of the layers that the job's adapter has, ", "found ",
        tensor.name, ", which is none of adapter.lora.targets"));
  }
  return absl::OkStatus();
}

absl::Status CheckAdapter(const InitFrom& from, const Checkpoint& checkpoint) {
  const std::optional<LoraNumbers>& found = checkpoint.state().adapter;
  if (!found || found == from.adapter) return absl::OkStatus();
  if (from.adapter && !found->nf4 && !found->dora) {
    // The job quantises the whole base, as it would that of a directory. With dora, the checkpoint
    // has differences from the norms of the whole base.
    LoraNumbers in_nf4 = *found;
    in_nf4.nf4 = from.adapter->nf4;
    if (in_nf4 == from.adapter) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      checkpoint.path(), ": wanted a checkpoint without an adapter or with that of the ", "job (",
      ToString(from.adapter), "), found an adapter: ", ToString(found),
      "; `trainyard export --merge` makes one model of it and its base"));
}

}  // namespace

absl::StatusOr<ChosenCheckpoint> LoadNewest(const std::vector<std::string>& candidates,
                                            const LoadingGang& gang, MayDiffer may_differ) {
  const auto use = [&](const Checkpoint& checkpoint) -> absl::Status {
    RETURN_IF_ERROR(checkpoint.CheckModel(gang.model, may_differ));
    return LoadSnapshot(checkpoint, LoadWhat::kEverything, gang.executable);
  };
  absl::StatusOr<ChosenCheckpoint> chosen = LoadFirstGood(candidates, use, OfHost, gang);
  if (absl::IsDataLoss(chosen.status())) return absl::InternalError(chosen.status().message());
  return chosen;
}

absl::StatusOr<InitialParameters> LoadInitFrom(const InitFrom& from, const LoadingGang& gang) {
  int64_t known = from.loaded_before || from.taken;  // Only rank 0 knows what was taken.
  gang.everyone.AllReduceMax(Tensor{{&known, DType::kI64, Shape{1}}});
  const bool again = known != 0;
  absl::StatusOr<std::vector<std::string>> candidates = CandidatesOf(from, gang);
  const absl::Status& found = candidates.status();
  RETURN_IF_ERROR(AgreeOnStatus(gang.everyone, again ? OfThisHost(found) : found));
  std::set<std::string> absent;  // Absent tensors of this rank.
  const auto use = [&](const Checkpoint& checkpoint) -> absl::Status {
    RETURN_IF_ERROR(CheckTaken(from, checkpoint));
    RETURN_IF_ERROR(CheckAdapter(from, checkpoint));
    const bool of_base = from.adapter && !checkpoint.state().adapter;
    RETURN_IF_ERROR(checkpoint.CheckModel(
        gang.model, from.subset ? MayDiffer::kInSubset : MayDiffer::kAtStart));
    absent.clear();
    return LoadSnapshot(checkpoint, of_base ? LoadWhat::kBase : LoadWhat::kParameters,
                        gang.executable, from.subset ? &absent : nullptr);
  };
  const Explain explain = again ? Explain(OfHost) : Explain(AsItIs);
  absl::StatusOr<ChosenCheckpoint> chosen = LoadFirstGood(*candidates, use, explain, gang);
  // If the other job still trains, it removes older checkpoints; newer ones are there by then.
  for (int tries = 1; !chosen.ok() && tries < kMostTries; ++tries) {
    absl::StatusOr<std::vector<std::string>> now = CandidatesOf(from, gang);
    int64_t others = now.ok() && *now != *candidates;  // On rank 0, which has the candidates.
    gang.everyone.AllReduceMax(Tensor{{&others, DType::kI64, Shape{1}}});
    if (others == 0) break;
    candidates = *std::move(now);
    chosen = LoadFirstGood(*candidates, use, explain, gang);
  }
  // No rank knows whether other hosts could read one of them.
  if (again && absl::IsDataLoss(chosen.status())) return OfThisHost(chosen.status());
  RETURN_IF_ERROR(chosen.status());
  const std::set<std::string> names = UnionOf(NamesOf(gang.executable), gang.everyone);
  InitialParameters loaded{.chosen = *std::move(chosen),
                           .count = names.size(),
                           .absent = UnionOf(absent, gang.everyone)};
  absl::Status some =
      gang.everyone.rank() == 0 ? CheckTargets(*loaded.chosen.checkpoint, names) : absl::OkStatus();
  if (loaded.count > 0 && loaded.absent.size() == loaded.count) {
    some = absl::InvalidArgumentError(absl::StrCat(
        loaded.chosen.checkpoint->path(), ": wanted some of the model's ", loaded.count,
        " parameters, found none; the first is ", *loaded.absent.begin()));
  }
  RETURN_IF_ERROR(AgreeOnStatus(gang.everyone, some));
  return loaded;
}

}  // namespace trainyard
