#include "common/process.h"

#include <signal.h>

#include <cerrno>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/files.h"

namespace trainyard {

namespace {

absl::StatusOr<std::string> ReadStat(pid_t pid) {
  return ReadFile(absl::StrCat("/proc/", pid, "/stat"), 1 << 16);
}

std::optional<ProcessStat> ParseStat(pid_t pid, const std::string& text) {
  // The second field is the program's name in parentheses, which may hold anything.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 2 > text.size()) return std::nullopt;
  const std::vector<absl::string_view> fields =
      absl::StrSplit(absl::string_view(text).substr(name_end + 2), ' ');
  if (fields.size() < 20) return std::nullopt;
  ProcessStat stat;
  stat.identity.pid = pid;
  stat.dead = fields[0] == "Z" || fields[0] == "X";
  if (!absl::SimpleAtoi(fields[1], &stat.parent) ||
      !absl::SimpleAtoi(fields[19], &stat.identity.start_time)) {
    return std::nullopt;
  }
  return stat;
}

}  // namespace

std::optional<ProcessStat> ReadProcess(pid_t pid) {
  const auto text = ReadStat(pid);
  return text.ok() ? ParseStat(pid, *text) : std::nullopt;
}

absl::StatusOr<bool> IsRunning(const ProcessIdentity& identity) {
  const auto text = ReadStat(identity.pid);
  if (!text.ok()) {
    // A process may end between opening and reading.
    const bool gone = ::kill(identity.pid, 0) != 0 && errno == ESRCH;
    if (gone || absl::IsNotFound(text.status())) return false;
    return text.status();
  }
  const auto stat = ParseStat(identity.pid, *text);
  if (!stat) return absl::InternalError(absl::StrCat("cannot understand /proc/", identity.pid));
  return !stat->dead && stat->identity.start_time == identity.start_time;
}

std::vector<ProcessStat> AllProcesses() {
  std::vector<ProcessStat> all;
  const auto names = ListDirectory("/proc");
  if (!names.ok()) return all;
  for (const std::string& name : *names) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(name, &pid)) continue;
    if (auto stat = ReadProcess(pid)) all.push_back(*stat);
  }
  return all;
}

}  // namespace trainyard
