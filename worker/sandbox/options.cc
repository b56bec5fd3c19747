#include "worker/sandbox/options.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "worker/sandbox/landlock.h"

namespace trainyard {
namespace {

absl::Status CheckRoots(const std::vector<std::string>& roots,
                        const std::vector<std::string>& hidden) {
  for (const std::string& path : hidden) {
    const std::string real = WithoutLinks(path);
    if (std::find(roots.begin(), roots.end(), real) == roots.end()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("--root ", real, ": this directory holds secrets that ranks must not see; ",
                     "name another directory with --root, or with --state"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string WithoutLinks(const std::string& path) {
  std::error_code error;
  std::string real = std::filesystem::weakly_canonical(path, error).string();
  if (error) return path;
  if (real.size() > 1 && real.back() == '/') real.pop_back();
  return real;
}

absl::StatusOr<std::optional<SandboxOptions>> ChooseSandbox(const SandboxRequest& request) {
  if (request.mode == "off") {
    if (request.user.empty()) return std::nullopt;
    return absl::InvalidArgumentError(
        "--rank-user: wanted --sandbox auto or require with it, found --sandbox off");
  }
  const bool require = request.mode == "require";
  if (!require && request.mode != "auto") {
    return absl::InvalidArgumentError(
        absl::StrCat("--sandbox: wanted off, auto or require, found '", request.mode, "'"));
  }
  SandboxOptions options;
  ASSIGN_OR_RETURN(options.user, ChooseRankUser(request.user, request.roots[0]));
  options.landlock = LandlockVersion() > 0;
  const bool as_root = ::geteuid() == 0 && !options.user;
  if (require && !options.landlock) {
    return absl::FailedPreconditionError(
        "--sandbox require: this kernel cannot restrict files; wanted Linux 5.13 or newer, with "
        "landlock among its security modules (the kernel's option lsm=)");
  }
  if (require && as_root) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--sandbox require: ranks would run as root; name another user with --rank-user, or make "
        "another user the owner of the first root, ",
        request.roots[0]));
  }
  if (options.user) RETURN_IF_ERROR(CheckReach(*options.user, request.state_directory + "/ranks"));
  options.hidden.push_back(request.state_directory);
  for (const std::string& path : request.hidden) {
    if (!path.empty()) options.hidden.push_back(std::filesystem::absolute(path).string());
  }
  if (options.landlock) RETURN_IF_ERROR(CheckRoots(request.roots, options.hidden));
  LogInfo("sandbox", {{"files", options.landlock ? "restricted" : "not restricted: no Landlock"},
                      {"user", options.user ? options.user->name
                               : as_root    ? "root"
                                            : "its own"}});
  return options;
}

}  // namespace trainyard
