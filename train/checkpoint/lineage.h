// Which checkpoints of a job's directory an attempt may load, and whether it is still the newest.
//
// An attempt (epoch E) first makes DIR/epoch-E/, then looks for what it can load, and then writes
// DIR/epoch-E/lineage.json: the checkpoint (epoch, step) that it continues, or that it continues
// none. Only then does it save. So the directory alone says which checkpoints are loadable: those
// of the newest epoch that has chosen, those of the epoch that it continues up to that step, and so
// on. What a superseded attempt commits later lies outside of the lineage: nobody loads it, and
// retention removes it (save.h). No one else has to know of a checkpoint for it to count.
//
// Only rank 0 of an attempt calls the functions that write.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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

// A stretch of the lineage: the checkpoints of one epoch up to a step.
struct Stretch {
  int64_t epoch = 0;
  int64_t last_step = 0;
};

// Newest stretch first; epochs and steps fall from each to the next.
struct Lineage {
  std::vector<Stretch> stretches;

  bool Holds(int64_t epoch, int64_t step) const;
  bool Holds(const ListedCheckpoint& listed) const;  // And it is complete.
};

// From which step an attempt went on; 0: from the beginning.
struct AttemptStart {
  int64_t epoch = 0;
  int64_t step = 0;
};

// Where the attempts of the lineage after `epoch` began, oldest first.
std::vector<AttemptStart> StartsAfter(const Lineage& lineage, int64_t epoch);

// Makes the directory of `epoch`: from then on earlier epochs remove nothing (ApplyRetention), and
// stop once they look. An error for which IsSuperseded holds where a later epoch has begun.
absl::Status BeginEpoch(const std::string& directory, int64_t epoch, Storage& storage);

// Writes the lineage file of `epoch`, which has begun: the checkpoint that it continues, or else
// the one that it began with. The file is there completely or not at all, and durable once this
// returns OK.
absl::Status WriteLineage(const std::string& directory, int64_t epoch,
                          const std::optional<Continued>& continued, Storage& storage,
                          const std::optional<InitialisedFrom>& initialised_from = std::nullopt);

// What the earliest attempt took of `named`: so that a later one, if it has to begin again, begins
// with the same parameters. Nothing where none says so. An absent directory has none.
absl::StatusOr<std::optional<InitialisedFrom>> ReadInitialisedFrom(const std::string& directory,
                                                                   absl::string_view named);

// The lineage of the newest epoch that has chosen. Epochs that began and chose nothing are left
// out. An epoch whose lineage file is missing (a version before this one wrote its checkpoints) or
// damaged is taken to continue everything before it; one that cannot be read is an error.
absl::StatusOr<Lineage> ReadLineage(const std::string& directory);
absl::StatusOr<Lineage> ReadLineage(const std::string& directory, const JobDirectory& found);

// The complete checkpoints of that lineage, newest first. An absent directory has none.
absl::StatusOr<std::vector<ListedCheckpoint>> LoadableCheckpoints(const std::string& directory);

// The newest epoch that has begun; 0: none has.
absl::StatusOr<int64_t> NewestEpoch(const std::string& directory);

// OK while `epoch` is the newest that has begun in the directory; otherwise an error for which
// IsSuperseded holds. A directory that cannot be read says nothing, and is OK.
absl::Status CheckNewest(const std::string& directory, int64_t epoch);
bool IsSuperseded(const absl::Status& status);

// The directory is not as the job left it (its share is not mounted here, say): a failure of this
// host, which says nothing about the job.
absl::Status StorageFault(const std::string& directory, const std::string& found);
// The same of a directory whose file system is full (RESOURCE_EXHAUSTED).
absl::Status StorageFull(const std::string& directory, const absl::Status& status);
// The failure of a host whose program cannot read a checkpoint, because a later version has written
// it (`status`, UNIMPLEMENTED).
absl::Status ProgramTooOld(const absl::Status& status);
bool IsStorageFault(const absl::Status& status);
// An error of what an earlier attempt of the job could use, as the host's failure. Errors that say
// what no other host could mend (INVALID_ARGUMENT, RESOURCE_EXHAUSTED, IsSuperseded) stay.
absl::Status OfThisHost(const absl::Status& status);

}  // namespace trainyard
