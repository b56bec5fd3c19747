#include "worker/daemon/state_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/file_descriptor.h"
#include "common/files.h"
#include "common/patient_read.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

absl::Status HideNames(const std::string& directory) {
  struct stat info = {};
  if (::stat(directory.c_str(), &info) != 0) return ErrnoStatus(errno, "look at", directory);
  if (::chmod(directory.c_str(), info.st_mode & 0711) == 0) return absl::OkStatus();
  // Another user owns it; for example, root owns a volume of Kubernetes.
  if (errno == EPERM) return absl::OkStatus();
  return ErrnoStatus(errno, "set the mode of", directory);
}

}  // namespace

std::string RandomId() {
  std::random_device device;
  std::string id;
  for (int i = 0; i < 4; ++i) absl::StrAppend(&id, absl::StrFormat("%08x", device()));
  return id;
}

absl::StatusOr<std::unique_ptr<StateDirectory>> StateDirectory::Open(const std::string& path) {
  RETURN_IF_ERROR(MakeDirectories(path));
  std::error_code error;
  const std::string absolute = std::filesystem::canonical(path, error).string();
  if (error) return ErrnoStatus(error.value(), "resolve", path);
  const std::string lock_path = absolute + "/lock";
  FileDescriptor lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock.valid()) return ErrnoStatus(errno, "open", lock_path);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, "lock", lock_path);
    return absl::FailedPreconditionError(
        absl::StrCat("state directory ", absolute,
                     " belongs to another running worker daemon; give this one its own --state"));
  }
  std::unique_ptr<StateDirectory> state(new StateDirectory(absolute, std::move(lock)));
  const std::string ranks = absolute + "/ranks";
  RETURN_IF_ERROR(MakeDirectories(ranks));
  for (const std::string& directory : {absolute, ranks}) RETURN_IF_ERROR(HideNames(directory));
  const std::string id_path = absolute + "/worker_id";
  auto id = ReadPatiently([&] { return ReadFile(id_path, 4096); }, kReadPatience);
  if (absl::IsNotFound(id.status())) {
    id = absl::StrCat("w-", RandomId().substr(0, 12), "\n");
    RETURN_IF_ERROR(WriteFileAtomic(id_path, *id));
  }
  RETURN_IF_ERROR(id.status());
  state->worker_id_ = std::string(absl::StripAsciiWhitespace(*id));
  if (state->worker_id_.empty()) {
    return absl::DataLossError(absl::StrCat(id_path, " is empty; remove it to get a new id"));
  }
  return state;
}

}  // namespace trainyard
