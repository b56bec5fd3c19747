#include "worker/daemon/rank_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/crc32c.h"
#include "common/file_descriptor.h"
#include "common/files.h"
#include "common/json.h"
#include "common/json_fields.h"
#include "common/log.h"
#include "common/patient_read.h"
#include "common/reserved_file.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "nlohmann/json.hpp"
#include "worker/channel/exit_cause.h"
#include "worker/channel/unsent.h"

namespace trainyard {

template <typename V>
static void VisitFields(V& v, RankUser& user) {
  v.Later("name", user.name);
  v("uid", user.uid), v("gid", user.gid), v("groups", user.groups);
}

template <typename V>
static void VisitFields(V& v, Sandbox& sandbox) {
  v("writable", sandbox.writable), v("hidden", sandbox.hidden), v("readable", sandbox.readable);
  v.Later("made", sandbox.made);
  v("landlock", sandbox.landlock), v("user", sandbox.user);
}

template <typename V>
static void VisitFields(V& v, Launch& launch) {
  v("trainer", launch.trainer), v("working_directory", launch.working_directory);
  v("environment", launch.environment), v("device", launch.device);
  v.Later("log_file_bytes", launch.log_file_bytes), v.Later("log_files", launch.log_files);
  v.Later("umask", launch.umask), v("sandbox", launch.sandbox);
}

template <typename V>
static void VisitFields(V& v, ProcessIdentity& identity) {
  v("pid", identity.pid), v("start_time", identity.start_time);
}

// A trainer's own report has only a cause and a message.
template <typename V>
static void VisitFields(V& v, RankExit& exit) {
  std::string cause(Name(exit.cause));
  v("cause", cause), v("message", exit.message);
  v.Later("signal", exit.signal), v.Later("exit_code", exit.exit_code);
  if constexpr (V::kReads) exit.cause = ParseExitCause(cause);
}

namespace {

using nlohmann::json;

constexpr int kVersionOfFiles = 1;
constexpr char kChecksum[] = "checksum";
constexpr size_t kExitReportBytes = 16 << 10;
constexpr uint32_t kNoDevice = std::numeric_limits<uint32_t>::max();

// CRC-32C of the object's text, as nlohmann::json prints an object: its keys in order, no spaces.
std::string ChecksumOf(const json& object) {
  return absl::StrFormat("%08x", Crc32c(JsonText(object)));
}

// Removes the checksum from the object. A file without a checksum is of an earlier release, or the
// trainer has written it.
absl::Status TakeChecksum(const std::string& path, json& object) {
  const auto found = object.find(kChecksum);
  if (found == object.end()) return absl::OkStatus();
  const json said = std::move(*found);
  object.erase(found);
  if (said == ChecksumOf(object)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path, ": the checksum is wrong"));
}

absl::StatusOr<json> OurJson(const std::string& path, const std::string& text) {
  json parsed = ParseJson(text);
  if (!parsed.is_object()) return absl::DataLossError(absl::StrCat(path, " is not a JSON object"));
  RETURN_IF_ERROR(TakeChecksum(path, parsed));
  const auto version = parsed.find("version");
  if (version == parsed.end() || *version != kVersionOfFiles) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " has version ", version == parsed.end() ? "(none)" : version->dump(),
                     ", not ", kVersionOfFiles));
  }
  return parsed;
}

absl::StatusOr<json> ReadJson(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, 16 << 20));
  return OurJson(path, text);
}

// Readers see the whole file or none. It is not synced, because a power cut ends the rank, too.
absl::Status WriteJson(const std::string& path, const json& value) {
  // Invalid UTF-8 in a trainer's message is replaced. By default the library would throw.
  const std::string text = JsonText(value, 2) + "\n";
  const std::string temporary = path + ".tmp";
  std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) {
    ::unlink(temporary.c_str());
    return absl::ResourceExhaustedError(absl::StrCat("cannot write ", temporary));
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, "rename to", path);
  return absl::OkStatus();
}

// DATA_LOSS: a field is missing or wrong.
template <typename T>
absl::StatusOr<T> Read(const json& object, const std::string& path) {
  T value;
  const absl::Status status = ReadFields(object, value);
  if (status.ok()) return value;
  return absl::DataLossError(absl::StrCat(path, ": ", status.message()));
}

template <typename T>
json ObjectOf(const T& value) {
  json object = {{"version", kVersionOfFiles}};
  WriteFields(object, value);
  object[kChecksum] = ChecksumOf(object);
  return object;
}

template <typename T>
absl::Status Write(const std::string& path, const T& value) {
  return WriteJson(path, ObjectOf(value));
}

}  // namespace

RankDirectory::RankDirectory(const std::string& state_directory, const RankId& id)
    : path_(absl::StrCat(state_directory, "/ranks/", id.Name())) {}

absl::StatusOr<RankId> RankDirectory::ParseName(absl::string_view name) {
  const size_t rank_dot = name.rfind('.');
  const size_t epoch_dot =
      rank_dot == 0 || rank_dot == name.npos ? name.npos : name.rfind('.', rank_dot - 1);
  RankId id;
  if (epoch_dot == name.npos || !absl::SimpleAtoi(name.substr(rank_dot + 1), &id.rank) ||
      !absl::SimpleAtoi(name.substr(epoch_dot + 1, rank_dot - epoch_dot - 1), &id.epoch)) {
    return absl::InvalidArgumentError(absl::StrCat("'", name, "' is not JOB.EPOCH.RANK"));
  }
  id.job_id = std::string(name.substr(0, epoch_dot));
  if (!IsLegalJobId(id.job_id) || id.Name() != name) {
    return absl::InvalidArgumentError(absl::StrCat("'", name, "' is not JOB.EPOCH.RANK"));
  }
  return id;
}

bool RankDirectory::IsLegalJobId(absl::string_view job_id) {
  return !job_id.empty() && job_id.size() <= 64 && job_id[0] != '.' &&
         std::all_of(job_id.begin(), job_id.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.';
         });
}

std::string RankDirectory::File(absl::string_view name) const {
  return absl::StrCat(path_, "/", name);
}

std::string RankDirectory::TrainersFile(absl::string_view name) const {
  return Has("trainer") ? absl::StrCat(path_, "/trainer/", name) : File(name);
}

bool RankDirectory::Has(absl::string_view name) const { return Exists(File(name)); }

void RankDirectory::Mark(absl::string_view name) const {
  const FileDescriptor file(::open(File(name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (file.valid()) return;
  LogWarning("rank_mark_failed", {{"error", ErrnoStatus(errno, "create", File(name)).message()}});
}

absl::Status RankDirectory::SyncReports() const {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(path_));
  absl::Status all;
  for (const std::string& name : names) {
    const bool report = name == "ready" || absl::StartsWith(name, "steps.") ||
                        absl::StartsWith(name, "checkpoints.");
    if (!report) continue;
    const absl::Status synced = SyncFile(File(name));
    if (!absl::IsNotFound(synced)) all.Update(synced);
  }
  const std::string unsent = TrainersFile(channel::kUnsentName);
  const absl::Status synced = SyncFileOfOthers(unsent);
  if (!absl::IsNotFound(synced)) all.Update(synced);
  if (Has("trainer")) all.Update(SyncDirectory(File("trainer")));
  all.Update(SyncDirectory(path_));
  return all;
}

std::string RankDirectory::Marker(const std::string& path) {
  return absl::StrCat("TRAINYARD_RANK_DIRECTORY=", path);
}

std::vector<std::string> TrainerArguments(const Launch& launch, const RankDirectory& directory) {
  return {launch.trainer, directory.File("config.json")};
}

absl::Status WriteLaunch(const RankDirectory& directory, const Launch& launch) {
  return Write(directory.File("launch.json"), launch);
}

absl::StatusOr<Launch> ReadLaunch(const std::string& path) {
  ASSIGN_OR_RETURN(const json object, ReadJson(path));
  ASSIGN_OR_RETURN(Launch launch, Read<Launch>(object, path));
  if (launch.trainer.empty()) return absl::DataLossError(absl::StrCat(path, " names no trainer"));
  if (launch.sandbox && launch.sandbox->user && launch.sandbox->user->uid == 0) {
    return absl::DataLossError(absl::StrCat(path, ": sandbox.user.uid: wanted a user, found root"));
  }
  return launch;
}

absl::Status WriteSupervisor(const std::string& path, const ProcessIdentity& identity) {
  return Write(path, identity);
}

absl::StatusOr<ProcessIdentity> ReadSupervisor(const std::string& path) {
  ASSIGN_OR_RETURN(const json object, ReadJson(path));
  ASSIGN_OR_RETURN(const ProcessIdentity identity, Read<ProcessIdentity>(object, path));
  if (identity.pid <= 1) return absl::DataLossError(absl::StrCat(path, " names no process"));
  return identity;
}

absl::StatusOr<ProcessIdentity> FindSupervisor(const RankDirectory& directory) {
  const std::string path = directory.File("supervisor.json");
  const auto identity = ReadSupervisor(path);
  if (identity.ok() || MayPass(identity.status()) || absl::IsNotFound(identity.status())) {
    return identity;
  }
  const auto found = FindMarkedSession(RankDirectory::Marker(directory.path()));
  if (MayPass(found.status())) return found;
  LogWarning("supervisor_file_damaged",
             {{"error", identity.status().message()}, {"found_pid", found.ok() ? found->pid : 0}});
  if (!found.ok()) return identity;
  // Whoever speaks for the rank is compared with the file.
  RETURN_IF_ERROR(WriteSupervisor(path, *found));
  return found;
}

absl::StatusOr<uint32_t> ReadDevice(const RankDirectory& directory) {
  const auto launch = ReadLaunch(directory.File("launch.json"));
  if (launch.ok()) return launch->device;
  const auto text = ReadFileOfOthers(directory.File("config.json"), 16 << 20);
  const json config = text.ok() ? ParseJson(*text) : json();
  const json::json_pointer place("/rank/device");
  const bool there = config.contains(place) && config[place].is_number_unsigned();
  const uint64_t device = there ? config[place].get<uint64_t>() : kNoDevice;
  if (device >= kNoDevice) return launch.status();
  return uint32_t(device);
}

absl::Status ReserveRoomForReport(const std::string& path) {
  return ReserveFile(path, kExitReportBytes);
}

absl::Status WriteExitReport(const std::string& path, const RankExit& exit) {
  const absl::Status written = Write(path, exit);
  if (written.ok()) {
    ReleaseReserve(path);
    return written;
  }
  RankExit shorter = exit;
  // JSON may need six bytes for one.
  shorter.message = std::string(CutUtf8(exit.message, kExitReportBytes / 8));
  const absl::Status reserved = WriteReservedFile(path, JsonText(ObjectOf(shorter)) + "\n");
  if (reserved.ok()) return reserved;
  return absl::Status(written.code(), absl::StrCat(written.message(), "; ", reserved.message()));
}

ExitCause CauseOfFailedStart(const absl::Status& status) {
  // The second has what ErrnoStatus has no word for: EMFILE, EAGAIN, ENOMEM, EIO.
  const bool host = absl::IsResourceExhausted(status) || absl::IsInternal(status);
  return host ? ExitCause::kStorage : ExitCause::kOther;
}

absl::StatusOr<RankExit> ReadExitReport(const std::string& path) {
  ASSIGN_OR_RETURN(const json object, ReadJson(path));
  return Read<RankExit>(object, path);
}

absl::StatusOr<RankExit> ReadTrainersReport(const RankDirectory& directory) {
  const std::string path = directory.TrainersFile("trainer_exit.json");
  ASSIGN_OR_RETURN(const std::string text, ReadFileOfOthers(path, 1 << 20));
  ASSIGN_OR_RETURN(const json object, OurJson(path, text));
  return Read<RankExit>(object, path);
}

}  // namespace trainyard
