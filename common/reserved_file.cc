#include "common/reserved_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "common/file_descriptor.h"
#include "common/files.h"

namespace trainyard {
namespace {

std::string RoomOf(const std::string& path) { return path + ".room"; }

absl::Status WriteFromStart(int fd, absl::string_view text, const std::string& path) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::pwrite(fd, text.data() + done, text.size() - done, off_t(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "write", path);
    done += size_t(n);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReserveFile(const std::string& path, size_t bytes) {
  const std::string room = RoomOf(path);
  const FileDescriptor file(
      ::open(room.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid()) return ErrnoStatus(errno, "create", room);
  // Bytes are written, because not every file system can reserve blocks without them.
  absl::Status status = WriteFromStart(file.get(), std::string(bytes, ' '), room);
  // Some file systems say only now that they are full.
  if (status.ok() && ::fdatasync(file.get()) != 0) status = ErrnoStatus(errno, "sync", room);
  if (!status.ok()) ::unlink(room.c_str());
  return status;
}

absl::Status WriteReservedFile(const std::string& path, absl::string_view contents) {
  const std::string room = RoomOf(path);
  const FileDescriptor file(::open(room.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file.valid()) return ErrnoStatus(errno, "open", room);
  struct stat info = {};
  if (::fstat(file.get(), &info) != 0) return ErrnoStatus(errno, "stat", room);
  if (contents.size() > uint64_t(info.st_size)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "cannot write ", contents.size(), " bytes into ", room, ", which has ", info.st_size));
  }
  if (absl::Status status = WriteFromStart(file.get(), contents, room); !status.ok()) return status;
  if (::ftruncate(file.get(), off_t(contents.size())) != 0) {
    return ErrnoStatus(errno, "shorten", room);
  }
  if (::fdatasync(file.get()) != 0) return ErrnoStatus(errno, "sync", room);
  if (::rename(room.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, "rename to", path);
  return absl::OkStatus();
}

void ReleaseReserve(const std::string& path) { ::unlink(RoomOf(path).c_str()); }

}  // namespace trainyard
