// A rank's reports that the controller has not acknowledged, one JSON line each (the local socket's
// form), so that those that a daemon took before it died are sent by the next one. Files NAME.N,
// each removed once all in it is acknowledged.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <string>

#include "worker/channel/messages.h"

namespace trainyard {

// Not thread-safe. Written, not synced: it is to survive this process, not the machine, until the
// rank ends (RankDirectory::SyncReports). Failures are logged; the reports then live in memory
// alone.
class Spool {
 public:
  static constexpr uint64_t kUnbounded = std::numeric_limits<uint64_t>::max();
  static constexpr uint64_t kNeverAcknowledged = std::numeric_limits<uint64_t>::max();

  // Beyond `max_bytes` the oldest file goes: what must arrive has an unbounded spool of its own.
  Spool(std::string directory, const std::string& name, uint64_t max_bytes = kUnbounded);
  ~Spool();
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;

  // `sequence`: the report's in the outbox; they grow. Returns how many lines the bound has cost.
  uint64_t Append(const channel::Message& message, uint64_t sequence);
  // Everything up to `sequence`.
  void Acknowledge(uint64_t sequence);

  // Hands over what an earlier daemon left, oldest first, and takes each one's new sequence. A torn
  // last line is not part of it. Before the first Append.
  void Recover(const std::function<uint64_t(channel::Message)>& adopt);

 private:
  struct File {
    uint64_t number = 0;
    uint64_t bytes = 0;
    uint64_t lines = 0;
    uint64_t last_sequence = 0;
  };

  std::string Path(const File& file) const;
  void AddFile();
  void RemoveOldest();

  const std::string directory_;
  const std::string prefix_;
  const uint64_t max_bytes_;
  const uint64_t file_bytes_;
  std::deque<File> files_;  // Oldest first; fd_ is of the last.
  uint64_t total_bytes_ = 0;
  uint64_t next_number_ = 0;
  int fd_ = -1;
  bool failed_ = false;
};

}  // namespace trainyard
