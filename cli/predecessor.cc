#include "cli/predecessor.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/file_descriptor.h"
#include "common/files.h"

namespace trainyard::cli {
namespace {

// Whether LocalService gives a child's state directory this name.
bool IsOfChild(absl::string_view name) {
  if (name == "controller") return true;
  return absl::ConsumePrefix(&name, "worker-") && !name.empty() &&
         std::all_of(name.begin(), name.end(), absl::ascii_isdigit);
}

bool IsLocked(const std::string& path) {
  const FileDescriptor lock(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  return lock.valid() && ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

}  // namespace

std::string FindPredecessor(const std::string& state) {
  for (const std::string& name : ListDirectory(state).value_or(std::vector<std::string>())) {
    const std::string directory = absl::StrCat(state, "/", name);
    if (IsOfChild(name) && IsLocked(directory + "/lock")) return directory;
  }
  return "";
}

}  // namespace trainyard::cli
