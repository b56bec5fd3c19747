// Storage that fails, or stops like a killed process or a power cut, at the n-th call that changes
// the file system.
//
// A power cut keeps what was synced. Of the rest it keeps a part that the seed chooses: names made,
// renamed or removed in a directory that was not synced may be there or not, each for itself; bytes
// of a file that was not synced may be cut off or be zeros.

#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "train/checkpoint/storage.h"

namespace trainyard::testing_checkpoint {

enum class Fault {
  kNone,
  kError,     // The call does nothing and fails; later calls work. Of an append, half is written.
  kKill,      // The same, and every later call fails, too.
  kPowerCut,  // As kKill; then call LosePower().
};

// Not thread-safe. Keeps what it removes in `graveyard`, a directory on the same file system.
class FaultyStorage final : public Storage {
 public:
  FaultyStorage(Fault fault, int at, uint64_t seed, std::string graveyard)
      : fault_(fault), at_(at), seed_(seed), graveyard_(std::move(graveyard)) {}

  absl::StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<OutputFile>> OpenAppend(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Link(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;
  absl::Status MakeDirectory(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& path) override;

  bool hit() const { return hit_; }  // The fault has happened.
  void LosePower();

  // For the files it hands out.
  absl::Status Append(OutputFile& file, const std::string& path, const void* data, size_t bytes);
  absl::Status Sync(const std::string& path);

 private:
  struct Change {
    std::string directory;
    std::function<void()> undo;
  };

  // The error of this call, or OK.
  absl::Status Step(const std::string& what);
  void Changed(const std::string& path, std::function<void()> undo);

  const Fault fault_;
  const int at_;
  const uint64_t seed_;
  const std::string graveyard_;
  int calls_ = 0;
  int buried_ = 0;
  bool hit_ = false;
  std::vector<Change> unsynced_changes_;
  std::map<std::string, uint64_t> unsynced_bytes_;  // Path: bytes that are safe.
};

}  // namespace trainyard::testing_checkpoint
