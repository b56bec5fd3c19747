// A rank's output on disk, bounded: files log.POSITION, each named by the position of its first
// byte in the whole output, so that a reader needs no more than a position to go on after any
// rotation.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainyard {

// Not thread-safe. Opens behind what is there already.
class LogWriter {
 public:
  LogWriter(std::string directory, uint64_t file_bytes, uint32_t files);
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  // A disk that takes no more loses the text, not the rank: the first failure is logged.
  void Append(absl::string_view text);
  // The end of the output, for an exit report: at most 1 KiB, from a whole character on.
  const std::string& tail() const { return tail_; }

 private:
  void Rotate();

  const std::string directory_;
  const uint64_t file_bytes_;
  const uint32_t files_;
  int fd_ = -1;
  uint64_t begin_ = 0;  // Position of the current file's first byte.
  uint64_t size_ = 0;   // Of the current file.
  bool failed_ = false;
  std::string tail_;
};

// Follows such files. Not thread-safe; another process may write meanwhile.
class LogReader {
 public:
  LogReader(std::string directory, uint64_t position)
      : directory_(std::move(directory)), position_(position) {}

  struct Lines {
    std::vector<std::string> lines;  // Without line breaks; cut at 8 KiB, never in a character.
    uint64_t skipped_bytes = 0;      // Rotated away, or too far behind.
  };
  struct Limits {
    size_t bytes = 32 << 10;           // Read at most this much at once.
    uint64_t backlog_bytes = 1 << 20;  // Farther behind, the older part is skipped.
    bool with_partial_line = false;    // At the end of the output: there comes no line break.
  };
  Lines Read(const Limits& limits);

  uint64_t position() const { return position_; }

 private:
  const std::string directory_;
  uint64_t position_;
};

}  // namespace trainyard
