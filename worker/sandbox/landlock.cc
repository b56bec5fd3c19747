#include "worker/sandbox/landlock.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/roots.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

constexpr uint64_t kReadFile = LANDLOCK_ACCESS_FS_READ_FILE;
constexpr uint64_t kRead = kReadFile | LANDLOCK_ACCESS_FS_READ_DIR;
// These may be newer than the headers of this build.
constexpr uint64_t kTruncate = 1 << 14;  // Version 3.
constexpr uint64_t kRefer = 1 << 13;     // Version 2.
constexpr uint64_t kWriteFile = LANDLOCK_ACCESS_FS_WRITE_FILE | kTruncate;
constexpr uint64_t kWrite = kWriteFile | kRefer | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                            LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_DIR |
                            LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK |
                            LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_SYM;
constexpr uint64_t kNobodys = LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK;

uint64_t Handled(int version) {
  uint64_t all = kRead | kWrite | kNobodys;
  if (version < 3) all &= ~kTruncate;
  if (version < 2) all &= ~kRefer;
  return all;
}

bool IsBelow(absl::string_view path, absl::string_view directory) {
  return path == directory || directory == "/" ||
         (absl::StartsWith(path, directory) && path[directory.size()] == '/');
}

class Ruleset {
 public:
  static absl::StatusOr<Ruleset> Create(int version) {
    const landlock_ruleset_attr attributes = {.handled_access_fs = Handled(version)};
    const long fd = ::syscall(SYS_landlock_create_ruleset, &attributes,
                              sizeof(attributes.handled_access_fs), 0);
    if (fd < 0) return ErrnoStatus(errno, "make", "a Landlock ruleset");
    return Ruleset(FileDescriptor(int(fd)), attributes.handled_access_fs);
  }

  // A path that does not exist, or cannot be reached, needs no rule.
  absl::Status Allow(const std::string& path, uint64_t access) const {
    const FileDescriptor parent(::open(path.c_str(), O_PATH | O_CLOEXEC | O_NOFOLLOW));
    struct stat info = {};
    if (!parent.valid() || ::fstat(parent.get(), &info) != 0) return absl::OkStatus();
    if (S_ISLNK(info.st_mode)) return absl::OkStatus();  // The link's target has its own path.
    if (!S_ISDIR(info.st_mode)) access &= kReadFile | kWriteFile;
    landlock_path_beneath_attr rule = {};
    rule.allowed_access = access & handled_;
    rule.parent_fd = parent.get();
    if (::syscall(SYS_landlock_add_rule, fd_.get(), LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0) {
      return absl::OkStatus();
    }
    return ErrnoStatus(errno, "make a Landlock rule for", path);
  }

  // Allows everything below `path` that is not hidden. Landlock has no rule that takes something
  // out. So this function goes down to each hidden path, and allows everything beside the way by
  // name.
  absl::Status AllowBeside(const std::vector<std::string>& hidden, const std::string& path,
                           uint64_t access) const {
    const auto below = [&](const std::string& h) { return IsBelow(h, path); };
    if (std::none_of(hidden.begin(), hidden.end(), below)) return Allow(path, access);
    if (std::find(hidden.begin(), hidden.end(), path) != hidden.end()) return absl::OkStatus();
    const auto names = ListDirectory(path);
    if (!names.ok()) return absl::OkStatus();  // The rank cannot read the directory, either.
    for (const std::string& name : *names) {
      const std::string child = absl::StrCat(path == "/" ? "" : path, "/", name);
      RETURN_IF_ERROR(AllowBeside(hidden, child, access));
    }
    return absl::OkStatus();
  }

  absl::Status Restrict() const {
    if (::syscall(SYS_landlock_restrict_self, fd_.get(), 0) == 0) return absl::OkStatus();
    return ErrnoStatus(errno, "apply", "the Landlock ruleset");
  }

 private:
  Ruleset(FileDescriptor fd, uint64_t handled) : fd_(std::move(fd)), handled_(handled) {}
  FileDescriptor fd_;
  uint64_t handled_;
};

}  // namespace

int LandlockVersion() {
  return std::max(
      0, int(::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION)));
}

absl::Status RestrictFiles(const Sandbox& sandbox) {
  ASSIGN_OR_RETURN(const Ruleset rules, Ruleset::Create(LandlockVersion()));
  RETURN_IF_ERROR(rules.AllowBeside(sandbox.hidden, "/", kRead));
  for (const std::string& path : sandbox.readable) {
    RETURN_IF_ERROR(rules.AllowBeside(sandbox.hidden, path, kRead));
  }
  for (const std::string& path : sandbox.writable) {
    RETURN_IF_ERROR(rules.AllowBeside(sandbox.hidden, path, kRead | kWrite));
  }
  return rules.Restrict();
}

}  // namespace trainyard
