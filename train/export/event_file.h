// A file of TensorBoard's events that may be written repeatedly and holds each step once.
//
// The file only grows, so that a TensorBoard that is reading the file can continue. If the history
// has changed (a job that continued from a checkpoint has run steps again), a restart event takes
// back all events from that step on. A record is: u64 length, u32 checksum of the length, the
// event, u32 checksum of the event. Numbers are little-endian, and checksums are masked CRC-32C
// (TensorFlow's TFRecord).
//
// A writer that is killed leaves at most one torn record at the end. Readers ignore such a record,
// and the next writer cuts it off. Not thread-safe.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_descriptor.h"
#include "train/export/event.h"

namespace trainyard {

class EventFile {
 public:
  // Opens the file, or makes one whose first event has this time. Cuts off a damaged record and all
  // that follows it. FAILED_PRECONDITION: another process writes the file, or `path` is not such a
  // file. Other errors are those of ErrnoStatus (common/files.h).
  static absl::StatusOr<std::unique_ptr<EventFile>> Open(const std::string& path, double wall_time);
  EventFile(const EventFile&) = delete;

  // The next Put is compared with the first event of the file. This is also the state after Open.
  void Rewind() { next_ = 0; }
  // Puts an event after those put since Rewind, whose steps must be lower. Writes nothing if the
  // file has the same event at this place. Otherwise takes back all events of the file from this
  // place on. INVALID_ARGUMENT: the step is not higher than the one before.
  absl::Status Put(const SummaryEvent& event);
  // Writes the events that were put.
  absl::Status Flush();
  // Takes back the events of the file after those put since Rewind, writes, and syncs the disk.
  absl::Status Finish(double wall_time);

 private:
  // An event that a reader of the file sees: one that was not taken back.
  struct Held {
    int64_t step = 0;
    uint32_t checksum = 0;
    bool operator==(const Held&) const = default;
  };

  EventFile(const std::string& path, FileDescriptor file) : path_(path), file_(std::move(file)) {}
  absl::Status Scan(double wall_time);
  bool Take(const std::string& event, int64_t number);
  absl::StatusOr<std::string> ReadRecord(int64_t offset) const;
  absl::StatusOr<std::string> ReadAt(int64_t offset, size_t bytes) const;
  absl::Status CheckForeign() const;
  void TakeBack(double wall_time, int64_t step);
  void Append(const SummaryEvent& event);

  const std::string path_;
  const FileDescriptor file_;
  std::vector<Held> held_;  // In the order of their steps.
  size_t next_ = 0;         // Index in held_ of the event with which the next Put is compared.
  std::string unwritten_;
};

}  // namespace trainyard
