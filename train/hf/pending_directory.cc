#include "train/hf/pending_directory.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

absl::Status CheckFree(const std::string& target) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::symlink_status(target, error);
  if (status.type() == std::filesystem::file_type::not_found) return absl::OkStatus();
  const auto taken = [&](const char* what) {
    return absl::FailedPreconditionError(absl::StrCat(
        target, ": wanted a path at which there is nothing, or an empty directory; found ", what));
  };
  if (status.type() != std::filesystem::file_type::directory) return taken("something else");
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(target));
  return names.empty() ? absl::OkStatus() : taken("files");
}

std::string ParentOf(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace

absl::StatusOr<PendingDirectory> PendingDirectory::Create(const std::string& target,
                                                          Storage& storage) {
  std::string path = std::filesystem::path(target).lexically_normal().string();
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  RETURN_IF_ERROR(CheckFree(path));
  const std::string name = std::filesystem::path(path).filename().string();
  if (name.empty() || name == "." || name == "..") {
    return absl::InvalidArgumentError(
        absl::StrCat(target, ": wanted a directory by its name, which is made or replaced"));
  }
  const std::string pending = absl::StrCat(ParentOf(path), "/.", name, ".", ::getpid(), ".partial");
  RETURN_IF_ERROR(CheckFree(pending));
  RETURN_IF_ERROR(storage.MakeDirectory(pending));
  return PendingDirectory(path, pending, storage);
}

PendingDirectory::~PendingDirectory() {
  // The caller reports why the directory was not committed. A second error would add nothing.
  if (!path_.empty()) RemoveTree(path_).IgnoreError();
}

absl::Status PendingDirectory::Commit() {
  RETURN_IF_ERROR(storage_->SyncDirectory(path_));
  RETURN_IF_ERROR(storage_->Rename(path_, target_));
  path_.clear();
  return storage_->SyncDirectory(ParentOf(target_));
}

}  // namespace trainyard
