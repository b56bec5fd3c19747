#include "controller/scheduler/scheduler.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace trainyard::controller {
namespace {

constexpr std::array<DeviceKind, 2> kKindsByPreference = {DeviceKind::kCuda, DeviceKind::kCpu};

uint32_t FreeGroups(const DevicePool& pool, uint32_t tensor) {
  return uint32_t(pool.free.size()) / tensor;
}

// The pools to use, largest first but for the last, which is the one that the rest fills best.
// Nothing: the gang does not fit.
std::optional<std::vector<DevicePool*>> Choose(std::vector<DevicePool*> pools, uint32_t groups,
                                               uint32_t tensor) {
  std::sort(pools.begin(), pools.end(), [&](const DevicePool* a, const DevicePool* b) {
    const uint32_t fa = FreeGroups(*a, tensor), fb = FreeGroups(*b, tensor);
    return fa != fb ? fa > fb : a->worker_id < b->worker_id;
  });
  std::vector<DevicePool*> chosen;
  for (size_t i = 0; i < pools.size(); ++i) {
    const uint32_t here = FreeGroups(*pools[i], tensor);
    if (here == 0) return std::nullopt;
    if (here < groups) {
      chosen.push_back(pools[i]);
      groups -= here;
      continue;
    }
    // The rest fits here: take the smallest of those that still hold it.
    size_t best = i;
    while (best + 1 < pools.size() && FreeGroups(*pools[best + 1], tensor) >= groups) ++best;
    // Among equals the first by name, so that the answer does not depend on the order of arrival.
    const uint32_t size = FreeGroups(*pools[best], tensor);
    while (best > i && FreeGroups(*pools[best - 1], tensor) == size) --best;
    chosen.push_back(pools[best]);
    return chosen;
  }
  return std::nullopt;
}

std::vector<PlacedRank> Take(const std::vector<DevicePool*>& chosen, uint32_t groups,
                             uint32_t tensor) {
  std::vector<PlacedRank> ranks;
  for (DevicePool* pool : chosen) {
    const uint32_t here = std::min(groups, FreeGroups(*pool, tensor));
    for (uint32_t i = 0; i < here * tensor; ++i) ranks.push_back({pool->worker_id, pool->free[i]});
    pool->free.erase(pool->free.begin(), pool->free.begin() + here * tensor);
    groups -= here;
  }
  CHECK(groups == 0) << groups << " tensor groups left over";
  return ranks;
}

struct Capacity {
  uint32_t total = 0;
  uint32_t free = 0;
  uint32_t groups_in_all = 0;  // Tensor groups that the machines hold when idle.
};

std::vector<DevicePool*> OfKind(std::vector<DevicePool>& pools, DeviceKind kind) {
  std::vector<DevicePool*> list;
  for (DevicePool& pool : pools) {
    if (pool.kind == kind) list.push_back(&pool);
  }
  return list;
}

Capacity CapacityOf(const std::vector<DevicePool*>& pools, uint32_t tensor) {
  Capacity capacity;
  for (const DevicePool* pool : pools) {
    capacity.total += pool->total;
    capacity.free += uint32_t(pool->free.size());
    capacity.groups_in_all += pool->total / tensor;
  }
  return capacity;
}

// Waits behind `head`, or for devices; of the kind that could come closest.
std::string WaitReason(const WaitingJob& job, const Capacity& capacity, const std::string& head) {
  const char* plural = job.ranks == 1 ? " device" : " devices";
  std::string text = absl::StrCat("needs ", job.ranks, job.cpu_only ? " CPU" : "", plural);
  if (job.tensor > 1) absl::StrAppend(&text, " in groups of ", job.tensor, " a machine");
  if (capacity.total == 0) return absl::StrCat(text, ", cluster has none");
  absl::StrAppend(&text, ", cluster has ", capacity.total, ", ", capacity.free, " free");
  if (!head.empty()) absl::StrAppend(&text, "; behind ", head);
  return text;
}

class Pass {
 public:
  explicit Pass(std::vector<DevicePool>& pools) : pools_(pools) {}

  Decision Decide(const WaitingJob& job) {
    const uint32_t groups = job.ranks / job.tensor;
    Capacity closest;
    std::string behind;
    for (const DeviceKind kind : kKindsByPreference) {
      if (job.cpu_only && kind != DeviceKind::kCpu) continue;
      const std::vector<DevicePool*> pools = OfKind(pools_, kind);
      const Capacity capacity = CapacityOf(pools, job.tensor);
      if (capacity.total > closest.total) closest = capacity;
      if (capacity.groups_in_all < groups) continue;
      if (const auto head = head_.find(kind); head != head_.end()) {
        behind = head->second;
        continue;
      }
      if (const auto chosen = Choose(pools, groups, job.tensor)) {
        return {job.id, Take(*chosen, groups, job.tensor), ""};
      }
      waits_for_.push_back(kind);
    }
    for (const DeviceKind kind : waits_for_) head_.emplace(kind, job.id);
    waits_for_.clear();
    return {job.id, {}, WaitReason(job, closest, behind)};
  }

 private:
  std::vector<DevicePool>& pools_;
  std::map<DeviceKind, std::string> head_;  // The job that keeps those behind it waiting.
  std::vector<DeviceKind> waits_for_;
};

}  // namespace

std::vector<Decision> Schedule(std::vector<WaitingJob> jobs, std::vector<DevicePool> pools) {
  std::sort(jobs.begin(), jobs.end(), [](const WaitingJob& a, const WaitingJob& b) {
    return a.priority != b.priority ? a.priority > b.priority : a.number < b.number;
  });
  for (DevicePool& pool : pools) std::sort(pool.free.begin(), pool.free.end());
  Pass pass(pools);
  std::vector<Decision> decisions;
  decisions.reserve(jobs.size());
  for (const WaitingJob& job : jobs) {
    CHECK(job.tensor > 0 && job.ranks % job.tensor == 0) << job.ranks << " ranks, " << job.tensor;
    decisions.push_back(pass.Decide(job));
  }
  return decisions;
}

}  // namespace trainyard::controller
