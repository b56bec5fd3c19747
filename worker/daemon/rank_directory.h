// The directory that the daemon keeps for one rank, STATE/ranks/JOB.EPOCH.RANK/. A later daemon
// finds everything there:
//
// clang-format off
//   config.json         the trainer's config (docs/formats.md)
//   launch.json         how its supervisor starts the trainer
//   supervisor.json     the supervisor's process identity, written by itself before all else
//   socket              where the trainer connects (docs/formats.md)
//   supervisor.log      what the supervisor itself had to say; usually nothing
//   log.000000000000    the trainer's output, rotated; each named by its first byte's position
//   log_position        how far the log has been forwarded
//   steps.N             steps that the controller has not acknowledged
//   checkpoints.N       checkpoints likewise
//   rendezvous.N        what the rank has set for its peers
//   ready               what the trainer said once it was ready to step
//   trainer/            what the trainer may write; the rest is the daemon's alone
//     trainer_exit.json   its own last words, if it had any
//     unsent.jsonl        what no daemon has acknowledged
//   exit_report.json    the supervisor's: the process is gone, its descendants are reaped
//   exit_report.json.room   the report's room on the disk, until the report is there
//   reported            exists once the controller has acknowledged the exit
// clang-format on
//
// launch.json, supervisor.json and exit_report.json have a "checksum" of their other fields, so
// that a file that was damaged is not believed. Earlier releases write none, and ignore the key.

#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/daemon/processes.h"
#include "worker/daemon/reports.h"
#include "worker/sandbox/sandbox.h"

namespace trainyard {

class RankDirectory {
 public:
  RankDirectory(const std::string& state_directory, const RankId& id);
  explicit RankDirectory(std::string path) : path_(std::move(path)) {}

  // Returns the id that a directory's name stands for. INVALID_ARGUMENT: the name has another form.
  static absl::StatusOr<RankId> ParseName(absl::string_view name);
  // Whether a job id can stand in a directory's name: [A-Za-z0-9_.-], at most 64, no dot in front.
  static bool IsLegalJobId(absl::string_view job_id);

  const std::string& path() const { return path_; }
  std::string File(absl::string_view name) const;
  bool Has(absl::string_view name) const;
  // The path of a file that the trainer writes. (Ranks of an older Trainyard write it beside the
  // other files.) The file is a stranger's: use only the functions of common/files.h that are for
  // files of others.
  std::string TrainersFile(absl::string_view name) const;
  void Mark(absl::string_view name) const;  // Makes an empty file; a failure is logged.
  // Makes the rank's reports survive a power cut. The rank's end may be told only after this: a job
  // whose ranks have all completed does not run again, and nobody else has their last reports.
  // Syncs as many files as possible, and returns the first error. A daemon may remove files
  // meanwhile.
  absl::Status SyncReports() const;

  // NAME=value in the environment of the supervisor and all that it starts.
  static std::string Marker(const std::string& path);

 private:
  std::string path_;
};

// The content of launch.json.
struct Launch {
  std::string trainer;                   // Path of the program. Its argument is the config's path.
  std::string working_directory;         // Relative paths of the job start here.
  std::vector<std::string> environment;  // NAME=value, all of it.
  uint32_t device = 0;
  uint64_t log_file_bytes = 4 << 20;
  uint32_t log_files = 4;
  mode_t umask = 022;                   // The trainer's; the supervisor's own files are private.
  std::optional<Sandbox> sandbox = {};  // Absent: the trainer may do what the daemon may.
};

// The arguments of the trainer: its program, and the path of its config.
std::vector<std::string> TrainerArguments(const Launch& launch, const RankDirectory& directory);

absl::Status WriteLaunch(const RankDirectory& directory, const Launch& launch);
absl::StatusOr<Launch> ReadLaunch(const std::string& path);

absl::Status WriteSupervisor(const std::string& path, const ProcessIdentity& identity);
absl::StatusOr<ProcessIdentity> ReadSupervisor(const std::string& path);
// Reads supervisor.json. If the file is damaged, looks for the supervisor among all processes, so
// that a rank that runs is not taken for one that has ended, and writes the file again.
absl::StatusOr<ProcessIdentity> FindSupervisor(const RankDirectory& directory);
// Reads the rank's device from launch.json or, if that fails, from config.json. Returns the error
// of launch.json.
absl::StatusOr<uint32_t> ReadDevice(const RankDirectory& directory);

// Reserves room on the disk for exit_report.json, so that a rank that has ended is not lost to a
// disk that has become full.
absl::Status ReserveRoomForReport(const std::string& path);
// Writes and reads exit_report.json. If the disk is full, the report goes into the reserved room,
// with as much of its message as fits.
absl::Status WriteExitReport(const std::string& path, const RankExit& exit);
absl::StatusOr<RankExit> ReadExitReport(const std::string& path);
// Returns the cause of a rank that could not be started: kStorage if this host failed, because its
// disk is full or because it has no processes, descriptors or memory left. Then the job waits a
// little and tries elsewhere, and no restart is counted.
ExitCause CauseOfFailedStart(const absl::Status& status);
// Reads trainer_exit.json, which has only a cause and a message.
absl::StatusOr<RankExit> ReadTrainersReport(const RankDirectory& directory);

}  // namespace trainyard
