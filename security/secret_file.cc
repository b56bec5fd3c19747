#include "security/secret_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/file_descriptor.h"
#include "common/files.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

constexpr size_t kLimitBytes = 64 << 10;
constexpr size_t kTrustedLimitBytes = 256 << 10;
constexpr mode_t kRightsOfOthers = S_IRWXG | S_IRWXO;

absl::Status TooLarge(absl::string_view path, size_t limit) {
  return absl::FailedPreconditionError(
      absl::StrCat(path, " is too large: more than ", limit, " bytes"));
}

absl::Status NotRegular(absl::string_view path) {
  return absl::FailedPreconditionError(
      absl::StrCat(path, " is not a regular file; secrets are read only from regular files"));
}

absl::Status WrongOwner(const struct stat& info, uid_t user, absl::string_view path) {
  // A user who forgot "sudo -u" must not be advised to take a service's files away from it.
  const std::string instead =
      user != 0 ? "" : absl::StrFormat("Run this as that user (sudo -u '#%d'). ", info.st_uid);
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s belongs to user %d, who could read or replace the secrets of user %d. %sIf the contents "
      "are trusted, and shall be user %d's, run: chown %d '%s'",
      path, info.st_uid, user, instead, user, user, path));
}

absl::Status TooWide(const struct stat& info, absl::string_view right, absl::string_view path) {
  return absl::FailedPreconditionError(
      absl::StrFormat("%s has mode %04o, which gives others than its owner a right to it. Run: "
                      "chmod %s '%s'",
                      path, info.st_mode & 07777, right, path));
}

absl::Status CheckKindAndOwner(const struct stat& info, uid_t user, absl::string_view path) {
  if (!S_ISREG(info.st_mode)) return NotRegular(path);
  if (info.st_uid != user && info.st_uid != 0) return WrongOwner(info, user, path);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadAll(const FileDescriptor& file, const std::string& path,
                                    size_t limit) {
  std::string contents(limit + 1, '\0');
  size_t size = 0;
  while (size < contents.size()) {
    const ssize_t n = ::read(file.get(), contents.data() + size, contents.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "read", path);
    if (n == 0) break;
    size += size_t(n);
  }
  if (size > limit) return TooLarge(path, limit);
  contents.resize(size);
  return contents;
}

absl::Status WriteAndSync(const std::string& path, absl::string_view text) {
  // A writer that died may have left a file of any mode, which others may hold open. So O_EXCL
  // insists on a new file, and follows no link.
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return ErrnoStatus(errno, "remove", path);
  const FileDescriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (file.get() < 0) return ErrnoStatus(errno, "create", path);
  // A umask can only remove rights from the 0600 above. Give the owner's rights back.
  if (::fchmod(file.get(), 0600) != 0) return ErrnoStatus(errno, "set the mode of", path);
  while (!text.empty()) {
    const ssize_t n = ::write(file.get(), text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "write", path);
    text.remove_prefix(size_t(n));
  }
  if (::fsync(file.get()) != 0) return ErrnoStatus(errno, "sync", path);
  return absl::OkStatus();
}

// Applies `check` to the descriptor, and then reads the same descriptor.
absl::StatusOr<std::string> ReadChecked(const std::string& path, size_t limit,
                                        absl::Status (*check)(const struct stat&, uid_t,
                                                              absl::string_view)) {
  // O_NONBLOCK, because opening a named pipe would otherwise wait for its writer.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.get() < 0 && errno == ENXIO) return NotRegular(path);  // A socket.
  if (file.get() < 0) return ErrnoStatus(errno, "open", path);
  struct stat info;
  if (::fstat(file.get(), &info) != 0) return ErrnoStatus(errno, "look at", path);
  RETURN_IF_ERROR(check(info, ::geteuid(), path));
  return ReadAll(file, path, limit);
}

std::string Parent(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace

absl::Status CheckSecretFile(const struct stat& info, uid_t user, absl::string_view path) {
  RETURN_IF_ERROR(CheckKindAndOwner(info, user, path));
  if ((info.st_mode & kRightsOfOthers) != 0) return TooWide(info, "600", path);
  return absl::OkStatus();
}

absl::Status CheckSecretFileOfPod(const struct stat& info, uid_t user, absl::string_view path) {
  RETURN_IF_ERROR(CheckKindAndOwner(info, user, path));
  if ((info.st_mode & kRightsOfOthers & ~S_IRGRP) != 0) return TooWide(info, "o=,g-wx", path);
  return absl::OkStatus();
}

absl::Status CheckTrustedFile(const struct stat& info, uid_t user, absl::string_view path) {
  RETURN_IF_ERROR(CheckKindAndOwner(info, user, path));
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) return TooWide(info, "go-w", path);
  return absl::OkStatus();
}

absl::Status CheckSecretDirectory(const struct stat& info, uid_t user, absl::string_view path) {
  if (info.st_uid != user) return WrongOwner(info, user, path);
  if ((info.st_mode & kRightsOfOthers) != 0) return TooWide(info, "700", path);
  return absl::OkStatus();
}

SecretReaders ReadersWhere(const char* kubernetes_service_host) {
  return kubernetes_service_host == nullptr ? SecretReaders::kOwner : SecretReaders::kOwnerAndGroup;
}

absl::StatusOr<std::string> ReadSecret(const std::string& path, SecretReaders readers) {
  return ReadChecked(path, kLimitBytes,
                     readers == SecretReaders::kOwner ? CheckSecretFile : CheckSecretFileOfPod);
}

absl::StatusOr<std::string> ReadTrusted(const std::string& path) {
  return ReadChecked(path, kTrustedLimitBytes, CheckTrustedFile);
}

absl::Status WriteSecret(const std::string& path, absl::string_view text) {
  if (text.size() > kLimitBytes) return TooLarge(path, kLimitBytes);
  const std::string temporary = path + ".tmp";
  if (absl::Status status = WriteAndSync(temporary, text); !status.ok()) {
    ::unlink(temporary.c_str());
    return status;
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    return ErrnoStatus(error, "rename to", path);
  }
  return SyncDirectory(Parent(path));
}

absl::Status MakeSecretDirectory(const std::string& path) {
  const std::string parent = Parent(path);
  RETURN_IF_ERROR(MakeDirectories(parent));
  const bool made = ::mkdir(path.c_str(), 0700) == 0;
  if (!made && errno != EEXIST) return ErrnoStatus(errno, "create directory", path);
  const FileDescriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0) return ErrnoStatus(errno, "open", path);
  struct stat info;
  if (::fstat(directory.get(), &info) != 0) return ErrnoStatus(errno, "look at", path);
  RETURN_IF_ERROR(CheckSecretDirectory(info, ::geteuid(), path));
  if (!made) return absl::OkStatus();
  if (::fchmod(directory.get(), 0700) != 0) return ErrnoStatus(errno, "set the mode of", path);
  return SyncDirectory(parent);
}

}  // namespace trainyard
