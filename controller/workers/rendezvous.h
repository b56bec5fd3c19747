// Passes small values between the ranks of one attempt of a job, so that they find each other.
// Bounded; dropped with the attempt.

#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "controller/workers/messages.h"

namespace trainyard::controller {

inline constexpr size_t kMaxRendezvousKeyBytes = 256;
inline constexpr size_t kMaxRendezvousValueBytes = 64 << 10;
inline constexpr size_t kMaxRendezvousJobBytes = 16
                                                 << 20;  // Keys, values and waiters of one attempt.

// Not thread-safe. Epochs of a job only grow: the first word of a newer one drops the older.
class Rendezvous {
 public:
  // Answers everybody who waits. The same key set again keeps its first value, which makes
  // resending harmless. RESOURCE_EXHAUSTED beyond the bounds; FAILED_PRECONDITION: a superseded
  // epoch.
  absl::Status Set(const std::string& job_id, uint64_t epoch, const std::string& key,
                   const std::string& value);

  // Sends the value on the link, now or once it is set.
  absl::Status Get(const std::string& job_id, uint64_t epoch, const std::string& key,
                   std::weak_ptr<WorkerLink> link);

  void Drop(const std::string& job_id) { rooms_.erase(job_id); }

 private:
  struct Room {
    uint64_t epoch = 0;
    size_t bytes = 0;
    std::map<std::string, std::string> values;
    std::map<std::string, std::vector<std::weak_ptr<WorkerLink>>> waiting;
  };
  absl::StatusOr<Room*> Enter(const std::string& job_id, uint64_t epoch, const std::string& key,
                              size_t bytes);

  std::map<std::string, Room> rooms_;
};

}  // namespace trainyard::controller
