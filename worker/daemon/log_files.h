// A rank's output on disk, limited in size. The files are named log.POSITION, by the position of
// their first byte in the whole output. So a reader needs only a position to continue after any
// rotation.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/file_descriptor.h"

namespace trainyard {

// Not thread-safe. Continues after existing files.
class LogWriter {
 public:
  LogWriter(std::string directory, uint64_t file_bytes, uint32_t files);

  // Appends to the output. If the disk takes no more, the text is lost and the rank goes on. The
  // first failure is logged.
  void Append(absl::string_view text);
  // The end of the output, for an exit report: at most 1 KiB, without a partial character.
  const std::string& tail() const { return tail_; }

 private:
  void Rotate();

  const std::string directory_;
  const uint64_t file_bytes_;
  const uint32_t files_;
  FileDescriptor file_;
  uint64_t begin_ = 0;  // Position of the current file's first byte.
  uint64_t size_ = 0;   // Of the current file.
  bool failed_ = false;
  std::string tail_;
};

// Reads these files. Not thread-safe. Another process may write them meanwhile.
class LogReader {
 public:
  LogReader(std::string directory, uint64_t position)
      : directory_(std::move(directory)), position_(position) {}

  struct Lines {
    // Without line breaks; longer lines are cut at 8 KiB, never inside a character.
    std::vector<std::string> lines;
    uint64_t skipped_bytes = 0;  // Bytes that were rotated away or are too far behind.
  };
  struct Limits {
    size_t bytes = 32 << 10;           // The most to read in one call.
    uint64_t backlog_bytes = 1 << 20;  // If the reader is farther behind, older bytes are skipped.
    bool with_partial_line = false;    // The output has ended: the last line may lack a line break.
  };
  // An error: a file cannot be read now. The next call reads from the same position.
  absl::StatusOr<Lines> Read(const Limits& limits);

  uint64_t position() const { return position_; }
  void Seek(uint64_t position) { position_ = position; }

 private:
  const std::string directory_;
  uint64_t position_;
};

}  // namespace trainyard
