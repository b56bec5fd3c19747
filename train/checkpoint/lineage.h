// Finds the checkpoints of a job's directory that an attempt may load, and whether the attempt is
// still the newest one.
//
// An attempt (epoch E) works in three steps. It makes DIR/epoch-E/. It looks for a checkpoint to
// load. Then it writes DIR/epoch-E/lineage.json, which names the checkpoint (epoch, step) that the
// attempt continues, or says that it continues none. Only after that does it save. So the directory
// alone says which checkpoints are loadable: those of the newest epoch that has chosen, those of
// the epoch that this one continues up to that step, and so on. A checkpoint that a superseded
// attempt commits later is outside the lineage: nobody loads it, and retention removes it (save.h).
// A checkpoint counts even if no other process knows of it.
//
// Only rank 0 of an attempt may call the functions that write.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/rank_records.h"
#include "train/checkpoint/load.h"
#include "train/checkpoint/storage.h"

namespace trainyard {

inline constexpr char kLineageName[] = "lineage.json";

// The checkpoint that an attempt continues.
struct Continued {
  int64_t epoch = 0;
  int64_t step = 0;
};

// The checkpoint of another job whose parameters an attempt began with. `named` is the job's
// init_from, `path` is the checkpoint that was taken from there, and `sha256` is the digest of that
// checkpoint's manifest.
struct InitialisedFrom {
  std::string named;
  std::string path;
  std::string sha256;
};

// A part of the lineage: the checkpoints of one epoch up to a step.
struct Stretch {
  int64_t epoch = 0;
  int64_t last_step = 0;
};

// The newest stretch comes first. Epochs and steps decrease from each stretch to the next.
struct Lineage {
  std::vector<Stretch> stretches;

  bool Holds(int64_t epoch, int64_t step) const;
  bool Holds(const ListedCheckpoint& listed) const;  // Also that it is complete.
};

// Returns where the lineage's attempts after `epoch` began, oldest first.
std::vector<AttemptStart> StartsAfter(const Lineage& lineage, int64_t epoch);

// Makes the directory of `epoch`. From then on attempts of earlier epochs remove nothing
// (ApplyRetention), and stop as soon as they look. Returns an error for which IsSuperseded holds if
// a later epoch has begun.
absl::Status BeginEpoch(const std::string& directory, int64_t epoch, Storage& storage);

// Writes the lineage file of `epoch`, which must have begun. `continued` is the checkpoint that the
// attempt continues; otherwise `initialised_from` is the one that it began with. The file is
// written completely or not at all, and is durable once this returns OK.
absl::Status WriteLineage(const std::string& directory, int64_t epoch,
                          const std::optional<Continued>& continued, Storage& storage,
                          const std::optional<InitialisedFrom>& initialised_from = std::nullopt);

// Returns the checkpoint that the earliest attempt took from `named` (nullopt: from anywhere), so
// that a later attempt that has to begin again begins with the same parameters. Returns nullopt if
// no attempt says so or the directory does not exist.
absl::StatusOr<std::optional<InitialisedFrom>> ReadInitialisedFrom(
    const std::string& directory, std::optional<absl::string_view> named);

// Returns the lineage of the newest epoch that has chosen. Epochs that began and chose nothing are
// left out. An epoch whose lineage file is damaged, or missing (an earlier version wrote its
// checkpoints), is assumed to continue everything before it. Returns an error if a lineage file
// cannot be read.
absl::StatusOr<Lineage> ReadLineage(const std::string& directory);
absl::StatusOr<Lineage> ReadLineage(const std::string& directory, const JobDirectory& found);

// Returns the complete checkpoints of that lineage, newest first. An absent directory has none.
absl::StatusOr<std::vector<ListedCheckpoint>> LoadableCheckpoints(const std::string& directory);

// Returns the newest epoch that has begun, or 0 if none has.
absl::StatusOr<int64_t> NewestEpoch(const std::string& directory);

// Returns OK if `epoch` is the newest that has begun in the directory, or if the directory cannot
// be read. Otherwise returns an error for which IsSuperseded holds.
absl::Status CheckNewest(const std::string& directory, int64_t epoch);
bool IsSuperseded(const absl::Status& status);

// The error for a directory that is not as the job left it, for example because its share is not
// mounted here. It is a failure of this host and says nothing about the job.
absl::Status StorageFault(const std::string& directory, const std::string& found);
// The same for a directory whose file system is full (RESOURCE_EXHAUSTED).
absl::Status StorageFull(const std::string& directory, const absl::Status& status);
// The same for a host whose program cannot read a checkpoint because a later version wrote it.
// `status` is the UNIMPLEMENTED error.
absl::Status ProgramTooOld(const absl::Status& status);
bool IsStorageFault(const absl::Status& status);
// Turns an error about something that an earlier attempt of the job could use into a failure of
// this host. Errors that no other host could repair (INVALID_ARGUMENT, RESOURCE_EXHAUSTED,
// IsSuperseded) are returned unchanged.
absl::Status OfThisHost(const absl::Status& status);

}  // namespace trainyard
