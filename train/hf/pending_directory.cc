#include "train/hf/pending_directory.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/files.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

constexpr char kSuffix[] = ".partial";

// Nothing can be renamed to a mount point, even if it is empty.
bool IsMountPoint(const std::string& path) {
  struct statx found = {};
  const int error = ::statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW, 0, &found);
  return error == 0 && (found.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

absl::Status CheckFree(const std::string& target) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::symlink_status(target, error);
  if (status.type() == std::filesystem::file_type::not_found) return absl::OkStatus();
  const auto taken = [&](const char* what) {
    return absl::FailedPreconditionError(absl::StrCat(
        target, ": wanted a path at which there is nothing, or an empty directory; found ", what));
  };
  if (status.type() != std::filesystem::file_type::directory) return taken("something else");
  if (IsMountPoint(target)) return taken("a mount point; name a directory in it");
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(target));
  return names.empty() ? absl::OkStatus() : taken("files");
}

std::string ParentOf(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string NameOf(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

std::string Normal(const std::string& target) {
  std::string path = std::filesystem::path(target).lexically_normal().string();
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// Names of pending directories are drawn, since processes in two containers may have one number.
uint64_t RandomNumber() {
  uint64_t number = 0;
  CHECK(getrandom(&number, sizeof(number), 0) == sizeof(number));
  return number;
}

}  // namespace

absl::Status PendingDirectory::Check(const std::string& target) {
  const std::string path = Normal(target), name = NameOf(path), parent = ParentOf(path);
  RETURN_IF_ERROR(CheckFree(path));
  if (name.empty() || name == "." || name == "..") {
    return absl::InvalidArgumentError(
        absl::StrCat(target, ": wanted a directory by its name, which is made or replaced"));
  }
  std::error_code error;
  if (std::filesystem::is_directory(parent, error)) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat(target, ": wanted a path in a directory, but there is no ", "directory ", parent,
                   "; mkdir -p ", parent, " makes it"));
}

absl::StatusOr<PendingDirectory> PendingDirectory::Create(const std::string& target,
                                                          Storage& storage) {
  RETURN_IF_ERROR(Check(target));
  const std::string path = Normal(target), parent = ParentOf(path);
  const std::string prefix = absl::StrCat(".", NameOf(path), ".");
  std::vector<std::string> left;
  ASSIGN_OR_RETURN(const std::vector<std::string> beside, ListDirectory(parent));
  for (const std::string& other : beside) {
    if (!absl::StartsWith(other, prefix) || !absl::EndsWith(other, kSuffix)) continue;
    left.push_back(absl::StrCat(parent, "/", other));
  }
  const std::string pending = absl::StrCat(parent, "/", prefix, absl::Hex(RandomNumber()), kSuffix);
  RETURN_IF_ERROR(storage.MakeDirectory(pending));
  return PendingDirectory({.target = path, .pending = pending, .left = std::move(left)}, storage);
}

PendingDirectory::~PendingDirectory() {
  // The caller reports why the directory was not committed. A second error would add nothing.
  if (!path_.empty()) RemoveTree(path_).IgnoreError();
}

std::string AdviceOnLeft(const std::string& path) {
  return absl::StrCat(path, ": a killed import or export has left it, unless one is running now; ",
                      "remove it then");
}

absl::Status PendingDirectory::Commit() {
  RETURN_IF_ERROR(storage_->SyncDirectory(path_));
  RETURN_IF_ERROR(storage_->Rename(path_, target_));
  path_.clear();
  return storage_->SyncDirectory(ParentOf(target_));
}

}  // namespace trainyard
