// A file in the rank's directory with the trainer's reports that no daemon has taken. So the
// reports outlive the trainer, and the next daemon reads them once the rank has ended. The file has
// the lines that would have gone over the local socket, with checksums (kept_lines.h).

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/file_descriptor.h"
#include "worker/channel/kept_lines.h"
#include "worker/channel/messages.h"

namespace trainyard::channel {

inline constexpr char kUnsentName[] = "unsent.jsonl";

// Written by the trainer. Not thread-safe. The file is not synced here; the supervisor syncs it
// once the trainer has ended. A failure is logged once.
class UnsentFile {
 public:
  explicit UnsentFile(std::string path) : path_(std::move(path)) {}  // Empty path: writes nothing.

  void Append(absl::string_view line);
  void Clear();  // A daemon has taken all lines.

 private:
  const std::string path_;
  FileDescriptor file_;
  bool failed_ = false;
};

// Reads the file of a trainer that has ended, oldest line first. A daemon may have taken some of
// the lines before. The file is read in parts, because a trainer may have left more than other
// ranks should wait for. Not thread-safe.
class UnsentReader {
 public:
  explicit UnsentReader(std::string path) : path_(std::move(path)) {}

  // Calls `use` for each message of the next part. Returns whether there may be more. NOT_FOUND:
  // there is no file. After any error, the next call reads the same part.
  absl::StatusOr<bool> Next(const std::function<void(Message)>& use);
  // What was lost so far. Each loss is logged, too.
  const LostLines& lost() const { return lost_; }

 private:
  const std::string path_;
  uint64_t position_ = 0;
  KeptLines lines_{/*earlier_numbered=*/true};
  LostLines lost_;
};

}  // namespace trainyard::channel
