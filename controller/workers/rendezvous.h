// Passes small values between the ranks of one attempt of a job, so that they find each other. The
// size is limited. The values are dropped when the attempt ends.

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
// The size of keys, values and waiters of one attempt.
inline constexpr size_t kMaxRendezvousJobBytes = 16 << 20;

// Not thread-safe. The epochs of a job only grow: the first call with a newer epoch drops the older
// one.
class Rendezvous {
 public:
  // Sets a value and sends it to everybody who waits for it. If the key is set already, its first
  // value stays, so repeating a call is harmless. RESOURCE_EXHAUSTED: a limit is exceeded.
  // FAILED_PRECONDITION: the epoch is superseded.
  absl::Status Set(const std::string& job_id, uint64_t epoch, const std::string& key,
                   const std::string& value);

  // Sends the value on the link, now or as soon as it is set. Errors: those of Set.
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
