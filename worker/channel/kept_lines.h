// The lines of a file that keeps reports for a later reader. They are the lines of the local
// socket, numbered, and each begins with a checksum of what follows:
//
//   {"checksum":"0f1e2d3c","sequence":7,"step":12,...}     CRC-32 (zlib's) of `"sequence":7,...}`
//
// So a line that was damaged is not believed, and a line that is missing is known by the gap in the
// numbers. Readers of the last release ignore the key.

#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "worker/channel/messages.h"

namespace trainyard::channel {

// Returns the line with its checksum and a line break. `line`: what Encode has returned.
std::string WithChecksum(absl::string_view line);

struct LostLines {
  uint64_t damaged = 0;  // Lines that are there and wrong.
  uint64_t missing = 0;  // Numbers that no line has, beyond those of the damaged lines.
};

// Reads such files, oldest first. All lines of one file are of one release, because each process
// begins a file of its own. A file without a checksum is of an earlier release, and its lines are
// believed as they are. In any other file a line without a checksum is damaged.
class KeptLines {
 public:
  // `earlier_numbered`: whether an earlier release numbered the lines of these files. If not, a
  // numbered line always has a checksum.
  explicit KeptLines(bool earlier_numbered) : earlier_numbered_(earlier_numbered) {}

  // The next lines follow those before in number, but are of another file.
  void BeginFile() { checked_ = false; }
  // A file between was empty or could not be read, so the next lines need not follow those before.
  void SkipFile() { last_sequence_ = 0; }
  // Calls `use` with each good line of the next part of the file. Returns what is lost in it. The
  // part ends with a line break, or with the end of the file. A last line without a line break is
  // torn: its writer has not acknowledged it, so it is not lost. If one byte too many follows a
  // good line there, that byte was the line break.
  LostLines Read(absl::string_view text, const std::function<void(Message)>& use);

  // Of the last good line; 0: none, or none since SkipFile.
  uint64_t last_sequence() const { return last_sequence_; }

 private:
  absl::StatusOr<Envelope> Checked(absl::string_view line) const;

  const bool earlier_numbered_;
  bool checked_ = false;  // The file has checksums.
  uint64_t last_sequence_ = 0;
  uint64_t damaged_ = 0;  // Damaged lines since the last good one.
};

}  // namespace trainyard::channel
