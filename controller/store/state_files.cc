#include "controller/store/state_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "common/file_descriptor.h"
#include "common/files.h"
#include "common/status_macros.h"

namespace trainyard::controller {

absl::Status SyncFile(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return ErrnoStatus(errno, "open", path);
  return ::fsync(file.get()) == 0 ? absl::OkStatus() : ErrnoStatus(errno, "sync", path);
}

absl::Status CopyFile(const std::string& from, const std::string& to) {
  std::error_code error;
  std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing, error);
  if (error) return ErrnoStatus(error.value(), "copy to " + to + " from", from);
  return SyncFile(to);
}

absl::Status ReplaceFile(const std::string& from, const std::string& to) {
  RETURN_IF_ERROR(SyncFile(from));
  if (::rename(from.c_str(), to.c_str()) != 0) return ErrnoStatus(errno, "rename to", to);
  return SyncDirectory(std::filesystem::path(to).parent_path().string());
}

}  // namespace trainyard::controller
