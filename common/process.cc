#include "common/process.h"

#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/files.h"

namespace trainyard {

std::optional<ProcessStat> ReadProcess(pid_t pid) {
  const auto text = ReadFile(absl::StrCat("/proc/", pid, "/stat"), 1 << 16);
  if (!text.ok()) return std::nullopt;
  // The second field is the program's name in parentheses, which may hold anything.
  const size_t name_end = text->rfind(')');
  if (name_end == std::string::npos || name_end + 2 > text->size()) return std::nullopt;
  const std::vector<absl::string_view> fields =
      absl::StrSplit(absl::string_view(*text).substr(name_end + 2), ' ');
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

bool IsRunning(const ProcessIdentity& identity) {
  const auto stat = ReadProcess(identity.pid);
  return stat && !stat->dead && stat->identity.start_time == identity.start_time;
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
