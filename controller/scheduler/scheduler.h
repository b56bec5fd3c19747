// Decides which waiting jobs get which devices: a pure function of the jobs and the machines.
//
// A gang (all ranks of a job) is placed whole or not at all. Jobs are considered by priority, then
// by age. A simple rule prevents starvation: a job that does not fit now, but would fit once other
// jobs have finished, keeps every job behind it waiting (for the same kind of device). A job that
// is larger than the whole cluster keeps nobody waiting, because it needs more machines, not
// patience. No job is placed ahead of a waiting job of the first kind (no backfill): run times are
// unknown, so such a job could delay it without limit. The price is idle devices while a large job
// waits. Only the machines that a waiting job avoids are open to the jobs behind it.
//
// The `tensor` consecutive ranks of a tensor group share a machine, because they communicate in
// every layer and wait for each other. The tensor groups of one context group communicate in every
// attention. They share a machine if the free devices allow it without waiting. Data and pipeline
// ranks communicate less, and are spread over the machines in order. A gang gets the fewest
// machines that satisfy all this. Among equals it gets those that it fills best. All devices of a
// gang are of one kind.

#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "common/device_kind.h"
#include "common/worker_messages.h"

namespace trainyard::controller {

struct WaitingJob {
  std::string id;
  int32_t priority = 0;
  uint64_t number = 0;  // Smaller is older.
  uint32_t ranks = 1;
  uint32_t tensor = 1;   // The fastest-varying coordinate of a rank,
  uint32_t context = 1;  // and the next. tensor * context divides ranks.
  bool cpu_only = false;
  // Workers that are avoided if the other workers could hold the job once they are idle.
  std::set<std::string> avoid = {};
  std::string name_space = {};  // A reason names no job of another namespace.
};

// One machine's devices of one kind.
struct DevicePool {
  std::string worker_id;
  DeviceKind kind = DeviceKind::kCpu;
  uint32_t total = 0;          // 0 if the worker takes no ranks.
  std::vector<uint32_t> free;  // Device indices.
};

struct Decision {
  std::string job_id;
  std::vector<RankPlacement> ranks;  // In rank order; empty: the job waits.
  std::string reason;                // Why it waits: "needs 4 devices, cluster has 2, 1 free".
};

// Returns one decision for each job, in the order in which the jobs were considered.
std::vector<Decision> Schedule(std::vector<WaitingJob> jobs, std::vector<DevicePool> pools);

}  // namespace trainyard::controller
