// The reports of a trainer that no daemon has taken, in a file of the rank's directory: what the
// trainer said while there was no daemon outlives the trainer, and the next daemon reads it once
// the rank has ended. Lines as they would have gone over the local socket.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "worker/channel/messages.h"

namespace trainyard::channel {

inline constexpr char kUnsentName[] = "unsent.jsonl";

// Of the trainer. Not thread-safe. Written, not synced: the supervisor syncs it once the trainer
// has ended. A failure is logged once.
class UnsentFile {
 public:
  explicit UnsentFile(std::string path) : path_(std::move(path)) {}  // Empty: nothing is written.
  ~UnsentFile();
  UnsentFile(const UnsentFile&) = delete;
  UnsentFile& operator=(const UnsentFile&) = delete;

  void Append(absl::string_view line);
  void Clear();  // All of it has been taken.

 private:
  const std::string path_;
  int fd_ = -1;
  bool failed_ = false;
};

// What an ended trainer has left there, oldest first; a torn last line is not part of it. Some of
// it may have been taken before. In parts, for a trainer may have left more than others should wait
// for. Not thread-safe.
class UnsentReader {
 public:
  explicit UnsentReader(std::string path) : path_(std::move(path)) {}

  // Hands the next part over. Returns whether there is more.
  bool Next(const std::function<void(Message)>& use);

 private:
  const std::string path_;
  uint64_t position_ = 0;
};

}  // namespace trainyard::channel
