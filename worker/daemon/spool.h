// A rank's reports that the controller has not acknowledged, one JSON line each (the local socket's
// form), so that those that a daemon took before it died are sent by the next one. Files NAME.N,
// each removed once all in it is acknowledged.

#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "worker/channel/messages.h"

namespace trainyard {

// Not thread-safe. Written, not synced: it is to survive this process, not the machine. Bounded:
// the oldest files go beyond 256 MiB. Failures are logged; the reports then live in memory alone.
class Spool {
 public:
  Spool(std::string directory, const std::string& name, uint64_t file_bytes = 1 << 20)
      : directory_(std::move(directory)), prefix_(name + "."), file_bytes_(file_bytes) {}
  ~Spool();
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;

  void Append(const channel::Message& message);
  void Acknowledge();  // The oldest that was not.
  void Clear();        // All are.

  // What an earlier daemon left; a torn last line is not part of it. Before the first Append.
  std::vector<channel::Message> Recover();

 private:
  struct File {
    uint64_t number = 0;
    uint64_t bytes = 0;
    uint64_t unacknowledged = 0;
  };

  std::string Path(const File& file) const;
  void AddFile();
  void RemoveOldest();

  const std::string directory_;
  const std::string prefix_;
  const uint64_t file_bytes_;
  std::deque<File> files_;  // Oldest first; fd_ is of the last.
  uint64_t total_bytes_ = 0;
  uint64_t next_number_ = 0;
  int fd_ = -1;
  bool failed_ = false;
};

}  // namespace trainyard
