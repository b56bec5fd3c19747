// A file of TensorBoard's events that may be written again and again, and holds each step once.
//
// The file only grows, so that a TensorBoard that is reading it goes on. Where the history has
// changed (a job that went on from a checkpoint has run steps again), a restart event takes back
// what stood there from that step on. A record is u64 length, u32 checksum of the length, the
// event, u32 checksum of the event; little-endian, the checksums CRC-32C, masked (TensorFlow's
// TFRecord).
//
// A writer that is killed leaves at most a torn record at the end, which readers ignore and the
// next writer cuts off. Not thread-safe.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train/export/event.h"

namespace trainyard {

class EventFile {
 public:
  // Opens the file, or makes one whose first event has this time. A damaged record is cut off, with
  // all that follows. FAILED_PRECONDITION: another process writes the file, or something else is
  // at `path`. Others: ErrnoStatus of common/files.h.
  static absl::StatusOr<std::unique_ptr<EventFile>> Open(const std::string& path, double wall_time);
  ~EventFile();
  EventFile(const EventFile&) = delete;

  // The next Put is compared with the first event that the file holds. To begin with, too.
  void Rewind() { next_ = 0; }
  // Puts an event behind those put since Rewind, whose steps must be lower. Nothing is written if
  // the file holds the same event there; otherwise what it holds from there on is taken back.
  // INVALID_ARGUMENT: the step is not above the one before.
  absl::Status Put(const Event& event);
  // Writes what was put.
  absl::Status Flush();
  // Takes back what the file holds beyond what was put since Rewind; writes, and syncs the disk.
  absl::Status Finish(double wall_time);

 private:
  // An event that a reader of the file sees.
  struct Held {
    int64_t step = 0;
    uint32_t checksum = 0;
    bool operator==(const Held&) const = default;
  };

  EventFile(const std::string& path, int fd) : path_(path), fd_(fd) {}
  absl::Status Scan(double wall_time);
  bool Take(const std::string& event, int64_t number);
  absl::StatusOr<std::string> ReadRecord(int64_t offset) const;
  absl::StatusOr<std::string> ReadAt(int64_t offset, size_t bytes) const;
  absl::Status CheckForeign() const;
  void TakeBack(double wall_time, int64_t step);
  void Append(const Event& event);

  const std::string path_;
  const int fd_;
  std::vector<Held> held_;  // In the order of their steps.
  size_t next_ = 0;         // In held_: with what the next Put is compared.
  std::string unwritten_;
};

}  // namespace trainyard
