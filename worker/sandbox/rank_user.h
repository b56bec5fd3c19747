// The user that ranks run as, where the daemon is root.

#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trainyard {

struct RankUser {
  std::string name = {};  // For people.
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups = {};  // All of them.
};

// The user with this name, or, where `name` is empty, the owner of `directory`: whose data a job
// reads. Absent: the daemon is not root, or that owner is root, so that ranks keep the daemon's
// user. INVALID_ARGUMENT: there is no such user; a name that is root's; a name although the daemon
// is not root.
absl::StatusOr<std::optional<RankUser>> ChooseRankUser(const std::string& name,
                                                       const std::string& directory);

// PERMISSION_DENIED: this user cannot get to `directory`, and how to change that.
absl::Status CheckReach(const RankUser& user, const std::string& directory);

absl::Status Become(const RankUser& user);  // For good.

}  // namespace trainyard
