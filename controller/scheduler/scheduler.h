// Which waiting jobs get which devices: a pure function of the jobs and the machines.
//
// Gangs are placed whole or not at all. Order is priority, then age. No starvation, by the simplest
// rule: a job that the cluster could hold once others finish, but not now, keeps every job behind
// it waiting (of the same kind of device). A job that is larger than the whole cluster keeps nobody
// waiting: more machines, not patience, would help it. There is no backfill past the first kind of
// job, because without run-time estimates any backfilled job could delay it without bound; the
// price is idle devices while a large job waits.
//
// A tensor group (`tensor` consecutive ranks) lies within one machine: it talks in every layer, and
// waits for it. So do the tensor groups of one context group, which talk in every attention,
// wherever the free devices allow that without waiting. Data and pipeline ranks talk less, and
// follow one another over the machines. A gang goes to the fewest machines that do all this; on a
// tie, to those that it fills best. All devices of a gang are of one kind.

#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "kernels/device/exec.h"

namespace trainyard::controller {

struct WaitingJob {
  std::string id;
  int32_t priority = 0;
  uint64_t number = 0;  // Smaller is older.
  uint32_t ranks = 1;
  uint32_t tensor = 1;   // The innermost digit of a rank's number,
  uint32_t context = 1;  // and the next. Their product divides ranks.
  bool cpu_only = false;
  // Workers that are left out as long as the others could hold the job.
  std::set<std::string> avoid = {};
  std::string name_space = {};  // Jobs of others are not named to it.
};

// One machine's devices of one kind.
struct DevicePool {
  std::string worker_id;
  DeviceKind kind = DeviceKind::kCpu;
  uint32_t total = 0;          // Of a worker that takes ranks.
  std::vector<uint32_t> free;  // Device indices.
};

struct PlacedRank {
  std::string worker_id;
  uint32_t device = 0;
};

struct Decision {
  std::string job_id;
  std::vector<PlacedRank> ranks;  // In rank order; empty: the job waits.
  std::string reason;             // Why it waits: "needs 4 devices, cluster has 2, 1 free".
};

// One decision a job, in the order in which they were considered.
std::vector<Decision> Schedule(std::vector<WaitingJob> jobs, std::vector<DevicePool> pools);

}  // namespace trainyard::controller
