#include "worker/sandbox/options.h"

#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "worker/sandbox/landlock.h"

namespace trainyard {

absl::StatusOr<std::optional<SandboxOptions>> ChooseSandbox(const SandboxRequest& request) {
  if (request.mode == "off") {
    if (request.user.empty()) return std::nullopt;
    return absl::InvalidArgumentError("--rank-user: goes with --sandbox auto or require");
  }
  const bool require = request.mode == "require";
  if (!require && request.mode != "auto") {
    return absl::InvalidArgumentError(
        absl::StrCat("--sandbox: wanted off, auto or require, found '", request.mode, "'"));
  }
  SandboxOptions options;
  ASSIGN_OR_RETURN(options.user, ChooseRankUser(request.user, request.root));
  options.landlock = LandlockVersion() > 0;
  const bool as_root = ::geteuid() == 0 && !options.user;
  if (require && !options.landlock) {
    return absl::FailedPreconditionError(
        "--sandbox require: this kernel does not restrict files; wanted Linux 5.13 or newer with "
        "landlock among its security modules (lsm=)");
  }
  if (require && as_root) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--sandbox require: ranks would run as root; name another user with --rank-user, or give "
        "the first root, ",
        request.root, ", to one"));
  }
  if (options.user) RETURN_IF_ERROR(CheckReach(*options.user, request.state_directory + "/ranks"));
  std::error_code error;
  const std::string secrets = std::filesystem::canonical(request.config_directory, error).string();
  if (!error) options.hidden.push_back(secrets);
  LogInfo("sandbox", {{"files", options.landlock ? "restricted" : "not restricted: no Landlock"},
                      {"user", options.user ? options.user->name
                               : as_root    ? "root"
                                            : "its own"}});
  return options;
}

}  // namespace trainyard
