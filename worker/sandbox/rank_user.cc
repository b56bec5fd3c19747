#include "worker/sandbox/rank_user.h"

#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

constexpr size_t kMostEntryBytes = 64 << 10;
constexpr int kMostGroups = 1024;

RankUser OfEntry(const passwd& entry) {
  RankUser user{entry.pw_name, entry.pw_uid, entry.pw_gid, std::vector<gid_t>(kMostGroups)};
  int groups = kMostGroups;
  if (::getgrouplist(entry.pw_name, entry.pw_gid, user.groups.data(), &groups) < 0) {
    groups = kMostGroups;  // The user has more groups; these are enough.
  }
  user.groups.resize(size_t(groups));
  return user;
}

}  // namespace

absl::StatusOr<std::optional<RankUser>> ChooseRankUser(const std::string& name,
                                                       const std::string& directory) {
  if (::geteuid() != 0) {
    if (name.empty()) return std::nullopt;
    return absl::InvalidArgumentError(
        absl::StrCat("--rank-user ", name,
                     ": wanted a worker that root starts; only root can start ranks as "
                     "another user"));
  }
  passwd entry = {};
  passwd* found = nullptr;
  std::vector<char> text(kMostEntryBytes);
  if (!name.empty()) {
    ::getpwnam_r(name.c_str(), &entry, text.data(), text.size(), &found);
    if (found == nullptr || found->pw_uid == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--rank-user: wanted the name of a user other than root, found '", name,
                       found == nullptr ? "', which this machine does not know" : "'"));
    }
    return OfEntry(*found);
  }
  struct stat owner = {};
  if (::stat(directory.c_str(), &owner) != 0) return ErrnoStatus(errno, "look at", directory);
  if (owner.st_uid == 0) return std::nullopt;
  ::getpwuid_r(owner.st_uid, &entry, text.data(), text.size(), &found);
  if (found != nullptr) return OfEntry(*found);
  // The owner is a user of another machine, or of a container's host.
  return RankUser{absl::StrCat(owner.st_uid), owner.st_uid, owner.st_gid, {owner.st_gid}};
}

absl::Status CheckReach(const RankUser& user, const std::string& directory) {
  const pid_t child = ::fork();
  if (child < 0) return ErrnoStatus(errno, "fork for", directory);
  if (child == 0) ::_exit(Become(user).ok() && ::access(directory.c_str(), X_OK) == 0 ? 0 : 1);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "ranks run as ", user.name, ", who cannot get to ", directory,
      ": let others pass through its directories (chmod o+x), or give --state another place"));
}

absl::Status Become(const RankUser& user) {
  if (::setgroups(user.groups.size(), user.groups.data()) != 0 ||
      ::setresgid(user.gid, user.gid, user.gid) != 0 ||
      ::setresuid(user.uid, user.uid, user.uid) != 0) {
    return ErrnoStatus(errno, "become", user.name);
  }
  return absl::OkStatus();
}

}  // namespace trainyard
