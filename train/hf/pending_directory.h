// A directory that appears at its path completely or not at all. It is filled under another name
// beside the path, and renamed at the end.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train/checkpoint/storage.h"

namespace trainyard {

class PendingDirectory {
 public:
  // Whether a directory can appear at `target`. FAILED_PRECONDITION: there is something, other than
  // an empty directory that is no mount point. NOT_FOUND: its parent is no directory.
  // INVALID_ARGUMENT: `target` has no name.
  static absl::Status Check(const std::string& target);
  // Makes the directory beside `target`, hidden: .NAME.RANDOM.partial. Errors: those of Check.
  // `storage` must outlive this object.
  static absl::StatusOr<PendingDirectory> Create(const std::string& target, Storage& storage);
  PendingDirectory(PendingDirectory&& other) noexcept
      : target_(std::move(other.target_)),
        path_(std::exchange(other.path_, {})),
        left_(std::move(other.left_)),
        storage_(other.storage_) {}
  PendingDirectory& operator=(PendingDirectory&&) = delete;
  ~PendingDirectory();  // Removes the directory and what is in it, unless it was committed.

  const std::string& path() const { return path_; }
  // Directories of the same kind beside it: what killed processes have left, unless another process
  // is writing one now.
  const std::vector<std::string>& left() const { return left_; }

  // Renames the directory to `target`. The files must have been synced. After OK, it survives a
  // power cut.
  absl::Status Commit();

 private:
  struct Paths {
    std::string target, pending;
    std::vector<std::string> left;
  };
  PendingDirectory(Paths paths, Storage& storage)
      : target_(std::move(paths.target)),
        path_(std::move(paths.pending)),
        left_(std::move(paths.left)),
        storage_(&storage) {}

  std::string target_, path_;
  std::vector<std::string> left_;
  Storage* storage_;
};

// Tells a person what to do about one of PendingDirectory::left.
std::string AdviceOnLeft(const std::string& path);

}  // namespace trainyard
