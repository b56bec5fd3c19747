// A directory that appears at its path completely or not at all. It is filled under another name
// beside the path, and renamed at the end.

#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train/checkpoint/storage.h"

namespace trainyard {

class PendingDirectory {
 public:
  // Makes the directory beside `target`, hidden and of a name that has the process in it.
  // FAILED_PRECONDITION: there is something at `target`, other than an empty directory. `storage`
  // must outlive this object.
  static absl::StatusOr<PendingDirectory> Create(const std::string& target, Storage& storage);
  PendingDirectory(PendingDirectory&& other) noexcept
      : target_(std::move(other.target_)),
        path_(std::exchange(other.path_, {})),
        storage_(other.storage_) {}
  PendingDirectory& operator=(PendingDirectory&&) = delete;
  ~PendingDirectory();  // Removes the directory and what is in it, unless it was committed.

  const std::string& path() const { return path_; }

  // Renames the directory to `target`. The files must have been synced. After OK, it survives a
  // power cut.
  absl::Status Commit();

 private:
  PendingDirectory(std::string target, std::string path, Storage& storage)
      : target_(std::move(target)), path_(std::move(path)), storage_(&storage) {}

  std::string target_, path_;
  Storage* storage_;
};

}  // namespace trainyard
