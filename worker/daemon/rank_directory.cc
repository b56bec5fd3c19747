#include "worker/daemon/rank_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/json.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"
#include "worker/channel/unsent.h"

namespace trainyard {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;

absl::StatusOr<json> OurJson(const std::string& path, const std::string& text) {
  json parsed = ParseJson(text);
  if (!parsed.is_object()) return absl::DataLossError(absl::StrCat(path, " is not a JSON object"));
  const auto version = parsed.find("version");
  if (version == parsed.end() || *version != kVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " has version ", version == parsed.end() ? "(none)" : version->dump(),
                     ", not ", kVersion));
  }
  return parsed;
}

absl::StatusOr<json> ReadJson(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, 16 << 20));
  return OurJson(path, text);
}

// Readers see the whole file or none. The file is not synced: a power cut ends the rank, too.
absl::Status WriteJson(const std::string& path, const json& value) {
  // Invalid UTF-8 in a trainer's message is replaced, never thrown at.
  const std::string text = value.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
  const std::string temporary = path + ".tmp";
  std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) return absl::ResourceExhaustedError(absl::StrCat("cannot write ", temporary));
  if (::rename(temporary.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, "rename to", path);
  return absl::OkStatus();
}

std::string Text(const json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

template <typename T>
T Number(const json& object, const char* key, T otherwise) {
  const auto it = object.find(key);
  if (it != object.end()) ReadInteger(*it, otherwise);
  return otherwise;
}

std::vector<std::string> Texts(const json& object, const char* key) {
  std::vector<std::string> texts;
  const auto it = object.find(key);
  if (it == object.end() || !it->is_array()) return texts;
  for (const json& entry : *it) {
    if (entry.is_string()) texts.push_back(entry.get<std::string>());
  }
  return texts;
}

// Returns whether there is such a list, of texts alone.
bool ReadAll(const json& object, const char* key, std::vector<std::string>& texts) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_array()) return false;
  texts = Texts(object, key);
  return texts.size() == it->size();
}

json ToJson(const Sandbox& sandbox) {
  json object = {{"writable", sandbox.writable},
                 {"hidden", sandbox.hidden},
                 {"readable", sandbox.readable},
                 {"made", sandbox.made},
                 {"landlock", sandbox.landlock}};
  if (sandbox.user) {
    const RankUser& user = *sandbox.user;
    object["user"] = {
        {"name", user.name}, {"uid", user.uid}, {"gid", user.gid}, {"groups", user.groups}};
  }
  return object;
}

// DATA_LOSS: the sandbox cannot be read. The trainer must not start without it.
absl::StatusOr<Sandbox> SandboxOf(const json& object, const std::string& path) {
  const auto damaged = [&] {
    return absl::DataLossError(absl::StrCat(path, ": its member 'sandbox' is damaged"));
  };
  if (!object.is_object()) return damaged();
  Sandbox sandbox;
  if (!ReadAll(object, "writable", sandbox.writable) ||
      !ReadAll(object, "hidden", sandbox.hidden) ||
      !ReadAll(object, "readable", sandbox.readable)) {
    return damaged();
  }
  // An older worker has none.
  if (object.contains("made") && !ReadAll(object, "made", sandbox.made)) return damaged();
  const auto landlock = object.find("landlock");
  if (landlock == object.end() || !landlock->is_boolean()) return damaged();
  sandbox.landlock = landlock->get<bool>();
  const auto user = object.find("user");
  if (user == object.end()) return sandbox;
  if (!user->is_object()) return damaged();
  sandbox.user = RankUser{.name = Text(*user, "name"), .uid = Number<uid_t>(*user, "uid", 0)};
  if (sandbox.user->uid == 0) return damaged();
  const auto group = user->find("gid");
  if (group == user->end() || !ReadInteger(*group, sandbox.user->gid)) return damaged();
  const auto groups = user->find("groups");
  if (groups == user->end() || !groups->is_array()) return damaged();
  for (const json& entry : *groups) {
    if (!ReadInteger(entry, sandbox.user->groups.emplace_back())) return damaged();
  }
  return sandbox;
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
  const int fd = ::open(File(name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    LogWarning("rank_mark_failed", {{"error", ErrnoStatus(errno, "create", File(name)).message()}});
    return;
  }
  ::close(fd);
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
  json object = {{"version", kVersion},
                 {"trainer", launch.trainer},
                 {"working_directory", launch.working_directory},
                 {"environment", launch.environment},
                 {"device", launch.device},
                 {"log_file_bytes", launch.log_file_bytes},
                 {"log_files", launch.log_files},
                 {"umask", launch.umask}};
  if (launch.sandbox) object["sandbox"] = ToJson(*launch.sandbox);
  return WriteJson(directory.File("launch.json"), object);
}

absl::StatusOr<Launch> ReadLaunch(const std::string& path) {
  ASSIGN_OR_RETURN(const json object, ReadJson(path));
  Launch launch;
  launch.trainer = Text(object, "trainer");
  launch.working_directory = Text(object, "working_directory");
  launch.environment = Texts(object, "environment");
  if (const auto it = object.find("sandbox"); it != object.end()) {
    ASSIGN_OR_RETURN(launch.sandbox, SandboxOf(*it, path));
  }
  launch.device = Number<uint32_t>(object, "device", 0);
  launch.log_file_bytes = Number<uint64_t>(object, "log_file_bytes", launch.log_file_bytes);
  launch.log_files = Number<uint32_t>(object, "log_files", launch.log_files);
  launch.umask = Number<mode_t>(object, "umask", launch.umask);
  if (launch.trainer.empty()) return absl::DataLossError(absl::StrCat(path, " names no trainer"));
  return launch;
}

absl::Status WriteSupervisor(const std::string& path, const ProcessIdentity& identity) {
  return WriteJson(
      path, {{"version", kVersion}, {"pid", identity.pid}, {"start_time", identity.start_time}});
}

absl::StatusOr<ProcessIdentity> ReadSupervisor(const std::string& path) {
  ASSIGN_OR_RETURN(const json object, ReadJson(path));
  const ProcessIdentity identity = {Number<pid_t>(object, "pid", 0),
                                    Number<uint64_t>(object, "start_time", 0)};
  if (identity.pid <= 1) return absl::DataLossError(absl::StrCat(path, " names no process"));
  return identity;
}

absl::Status WriteExitReport(const std::string& path, const RankExit& exit) {
  return WriteJson(path, {{"version", kVersion},
                          {"cause", Name(exit.cause)},
                          {"signal", exit.signal},
                          {"exit_code", exit.exit_code},
                          {"message", exit.message}});
}

absl::StatusOr<RankExit> ReadExitReport(const std::string& path) {
  ASSIGN_OR_RETURN(const json object, ReadJson(path));
  return RankExit{ParseExitCause(Text(object, "cause")), Number<int>(object, "signal", 0),
                  Number<int>(object, "exit_code", 0), Text(object, "message")};
}

absl::StatusOr<RankExit> ReadTrainersReport(const RankDirectory& directory) {
  const std::string path = directory.TrainersFile("trainer_exit.json");
  ASSIGN_OR_RETURN(const std::string text, ReadFileOfOthers(path, 1 << 20));
  ASSIGN_OR_RETURN(const json object, OurJson(path, text));
  return RankExit{ParseExitCause(Text(object, "cause")), 0, 0, Text(object, "message")};
}

}  // namespace trainyard
