// A rank's reports that the controller has not acknowledged, as lines of
// worker/channel/kept_lines.h. If a daemon dies, the next daemon sends the reports that the first
// had taken. The files are named NAME.N. Each is removed once all its reports are acknowledged. A
// file that was not read is not removed here, and Rank keeps its directory.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/file_descriptor.h"
#include "common/patient_read.h"
#include "worker/channel/kept_lines.h"
#include "worker/channel/messages.h"

namespace trainyard {

// Not thread-safe. The files are not synced until the rank ends (RankDirectory::SyncReports),
// because they must survive this process and not the machine. Failures are logged; the reports are
// then in memory alone.
class Spool {
 public:
  static constexpr uint64_t kUnbounded = std::numeric_limits<uint64_t>::max();
  static constexpr uint64_t kNeverAcknowledged = std::numeric_limits<uint64_t>::max();

  // Above `max_bytes` the oldest file is removed. Reports that must arrive have a spool without a
  // limit.
  Spool(std::string directory, const std::string& name, uint64_t max_bytes = kUnbounded);
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;

  // `sequence`: the report's number in the outbox; it must grow. Returns how many lines were
  // dropped at the limit.
  uint64_t Append(const channel::Message& message, uint64_t sequence);
  // Everything up to `sequence` is acknowledged.
  void Acknowledge(uint64_t sequence);

  // What Recover could not give to `adopt`. Each loss is logged with its file, too.
  struct Lost : channel::LostLines {
    uint64_t unreadable_files = 0;
  };
  // Calls `adopt` with each report that an earlier daemon left, oldest first. `adopt` returns the
  // report's new sequence. Call this before the first Append. Waits within `left`
  // (common/patient_read.h) for files that cannot be read; if that ends, they stay where they are.
  // Call this again, at any time, to read them.
  Lost Recover(const std::function<uint64_t(channel::Message)>& adopt, absl::Duration& left);
  // Whether files are left that could not be read.
  bool unread() const { return unlisted_ || !unread_.empty(); }

 private:
  struct File {
    uint64_t number = 0;
    uint64_t bytes = 0;
    uint64_t lines = 0;
    uint64_t last_sequence = 0;
  };

  std::string Path(const File& file) const;
  // The numbers of the files that an earlier daemon left, in order.
  absl::StatusOr<std::vector<uint64_t>> List() const;
  void AddFile();
  void LeaveGap();
  void RemoveOldest();

  const std::string directory_;
  const std::string prefix_;
  const uint64_t max_bytes_;
  const uint64_t file_bytes_;
  std::deque<File> files_;        // By last_sequence. file_ is the last one.
  std::vector<uint64_t> unread_;  // Numbers of files that could not be read.
  bool unlisted_ = false;         // There may be more such files.
  uint64_t total_bytes_ = 0;
  uint64_t next_number_ = 0;
  uint64_t last_line_ = 0;  // The number of the last line, as far as the files were read.
  FileDescriptor file_;
  bool failed_ = false;
};

}  // namespace trainyard
