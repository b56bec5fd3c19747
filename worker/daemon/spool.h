// A rank's reports that the controller has not acknowledged, one JSON line each (the local socket's
// form), so that those that a daemon took before it died are sent by the next one.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/channel/messages.h"

namespace trainyard {

// Not thread-safe. Written, not synced: it is to survive this process, not the machine. Failures
// are logged once; the reports then live in memory alone.
class Spool {
 public:
  explicit Spool(std::string path) : path_(std::move(path)) {}
  ~Spool();
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;

  void Append(const channel::Message& message);
  void Clear();  // Everything in it is acknowledged.

  // What an earlier daemon left; a torn last line is not part of it. Before the first Append.
  std::vector<channel::Message> Recover();

 private:
  const std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
  bool failed_ = false;
};

}  // namespace trainyard
