// The user that ranks run as if the daemon is root.

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

// Returns the user with this name. If `name` is empty, returns the owner of `directory`, which
// holds the data of jobs. Absent: ranks keep the daemon's user, because the daemon is not root or
// the owner is root. INVALID_ARGUMENT: there is no such user, or the user is root, or a name is
// given although the daemon is not root.
absl::StatusOr<std::optional<RankUser>> ChooseRankUser(const std::string& name,
                                                       const std::string& directory);

// Checks that the user can get to `directory`. PERMISSION_DENIED: the user cannot; the message says
// how to change this.
absl::Status CheckReach(const RankUser& user, const std::string& directory);

// Makes the calling process run as this user, for good.
absl::Status Become(const RankUser& user);

}  // namespace trainyard
