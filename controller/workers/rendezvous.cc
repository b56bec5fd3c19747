#include "controller/workers/rendezvous.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace trainyard::controller {

absl::StatusOr<Rendezvous::Room*> Rendezvous::Enter(const std::string& job_id, uint64_t epoch,
                                                    const std::string& key, size_t bytes) {
  Room& room = rooms_[job_id];
  if (epoch < room.epoch) {
    return absl::FailedPreconditionError(
        absl::StrCat("rendezvous of job ", job_id, " is at epoch ", room.epoch, ", not ", epoch));
  }
  if (epoch > room.epoch) room = {.epoch = epoch, .bytes = 0, .values = {}, .waiting = {}};
  const size_t cost = key.size() + bytes;
  if (key.size() > kMaxRendezvousKeyBytes || bytes > kMaxRendezvousValueBytes ||
      room.bytes + cost > kMaxRendezvousJobBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("rendezvous of job ", job_id, ": key of ", key.size(), " and value of ", bytes,
                     " bytes on top of ", room.bytes, " exceed the limits"));
  }
  room.bytes += cost;
  return &room;
}

absl::Status Rendezvous::Set(const std::string& job_id, uint64_t epoch, const std::string& key,
                             const std::string& value) {
  ASSIGN_OR_RETURN(Room * room, Enter(job_id, epoch, key, value.size()));
  const std::string& kept = room->values.emplace(key, value).first->second;
  const auto waiting = room->waiting.find(key);
  if (waiting == room->waiting.end()) return absl::OkStatus();
  for (const auto& weak : waiting->second) {
    if (const auto link = weak.lock()) link->Send(RendezvousValue{job_id, epoch, key, kept});
  }
  room->waiting.erase(waiting);
  return absl::OkStatus();
}

absl::Status Rendezvous::Get(const std::string& job_id, uint64_t epoch, const std::string& key,
                             std::weak_ptr<WorkerLink> link) {
  ASSIGN_OR_RETURN(Room * room, Enter(job_id, epoch, key, sizeof(link)));
  const auto known = room->values.find(key);
  if (known == room->values.end()) {
    room->waiting[key].push_back(std::move(link));
  } else if (const auto open = link.lock()) {
    open->Send(RendezvousValue{job_id, epoch, key, known->second});
  }
  return absl::OkStatus();
}

}  // namespace trainyard::controller
