#include "controller/scheduler/scheduler.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"

namespace trainyard::controller {
namespace {

constexpr std::array<DeviceKind, 2> kKindsByPreference = {DeviceKind::kCuda, DeviceKind::kCpu};

// Returns how many groups of `size` ranks the free devices hold.
uint32_t FreeGroups(const DevicePool& pool, uint32_t size) {
  return uint32_t(pool.free.size()) / size;
}

// Returns the pools to use: the largest first, and as the last one that which the remaining ranks
// fill best. Absent: the gang does not fit.
std::optional<std::vector<DevicePool*>> Choose(std::vector<DevicePool*> pools, uint32_t groups,
                                               uint32_t size) {
  std::sort(pools.begin(), pools.end(), [&](const DevicePool* a, const DevicePool* b) {
    const uint32_t fa = FreeGroups(*a, size), fb = FreeGroups(*b, size);
    return fa != fb ? fa > fb : a->worker_id < b->worker_id;
  });
  std::vector<DevicePool*> chosen;
  for (size_t i = 0; i < pools.size(); ++i) {
    const uint32_t here = FreeGroups(*pools[i], size);
    if (here == 0) return std::nullopt;
    if (here < groups) {
      chosen.push_back(pools[i]);
      groups -= here;
      continue;
    }
    // The remaining groups fit here. Choose the smallest pool that still holds them.
    size_t best = i;
    while (best + 1 < pools.size() && FreeGroups(*pools[best + 1], size) >= groups) ++best;
    // Among equal pools choose the first by name, so that the result does not depend on the order
    // of arrival.
    const uint32_t held = FreeGroups(*pools[best], size);
    while (best > i && FreeGroups(*pools[best - 1], size) == held) --best;
    chosen.push_back(pools[best]);
    return chosen;
  }
  return std::nullopt;
}

std::vector<RankPlacement> Take(const std::vector<DevicePool*>& chosen, uint32_t groups,
                                uint32_t size) {
  std::vector<RankPlacement> ranks;
  for (DevicePool* pool : chosen) {
    const uint32_t here = std::min(groups, FreeGroups(*pool, size));
    for (uint32_t i = 0; i < here * size; ++i) {
      ranks.push_back({uint32_t(ranks.size()), pool->free[i], pool->worker_id});
    }
    pool->free.erase(pool->free.begin(), pool->free.begin() + here * size);
    groups -= here;
  }
  CHECK(groups == 0) << groups << " groups left over";
  return ranks;
}

// The devices of one kind on all machines, during one pass over the queue.
struct Kind {
  std::vector<DevicePool*> pools;
  uint32_t total = 0;
  uint32_t free = 0;
  // The first job that waits for this kind. It and those that wait behind it have reserved all
  // pools but those in `open`.
  const WaitingJob* head = nullptr;
  std::set<const DevicePool*> open;
  std::map<uint32_t, uint32_t> groups_in_all;  // By tensor size: groups that fit if all are idle.

  bool CouldHold(const WaitingJob& job) {
    auto [entry, fresh] = groups_in_all.try_emplace(job.tensor, 0);
    if (fresh) {
      for (const DevicePool* pool : pools) entry->second += pool->total / job.tensor;
    }
    return entry->second >= job.ranks / job.tensor;
  }
};

// Returns the pools without those that the job avoids, or all pools if the job would otherwise
// never fit.
std::vector<DevicePool*> Wanted(const Kind& kind, const WaitingJob& job) {
  std::vector<DevicePool*> wanted;
  uint32_t groups = 0;
  for (DevicePool* pool : kind.pools) {
    if (job.avoid.contains(pool->worker_id)) continue;
    wanted.push_back(pool);
    groups += pool->total / job.tensor;
  }
  return groups >= job.ranks / job.tensor ? wanted : kind.pools;
}

// Names the machines that would be wanted if the job did not avoid them.
std::string Avoided(const Kind& kind, const WaitingJob& job) {
  constexpr size_t kNames = 3;
  if (job.avoid.empty() || Wanted(kind, job).size() == kind.pools.size()) return "";
  std::set<std::string> names;
  for (const DevicePool* pool : kind.pools) {
    if (job.avoid.contains(pool->worker_id)) names.insert(pool->worker_id);
  }
  const size_t named = std::min(names.size(), kNames);
  std::string text = absl::StrCat(
      "; avoids ", absl::StrJoin(names.begin(), std::next(names.begin(), named), ", "));
  if (names.size() > named) absl::StrAppend(&text, " and ", names.size() - named, " more");
  return absl::StrCat(text, ", where attempts of this job failed");
}

std::string WaitReason(const WaitingJob& job, const Kind* closest, const WaitingJob* head) {
  std::string text = absl::StrCat("needs ", job.ranks, job.cpu_only ? " CPU" : "",
                                  job.ranks == 1 ? " device" : " devices");
  if (job.tensor > 1) absl::StrAppend(&text, " in groups of ", job.tensor, " a machine");
  if (closest == nullptr) return absl::StrCat(text, ", cluster has none");
  absl::StrAppend(&text, ", cluster has ", closest->total, ", ", closest->free, " free",
                  Avoided(*closest, job));
  if (head != nullptr) {
    const bool own = head->name_space == job.name_space;
    absl::StrAppend(&text, "; behind ", own ? head->id : "a job of another namespace");
  }
  return text;
}

// The jobs must outlive the pass.
class Pass {
 public:
  explicit Pass(std::vector<DevicePool>& pools) {
    for (DevicePool& pool : pools) {
      Kind& kind = kinds_[pool.kind];
      kind.pools.push_back(&pool);
      kind.open.insert(&pool);
      kind.total += pool.total;
      kind.free += uint32_t(pool.free.size());
    }
  }

  Decision Decide(const WaitingJob& job) {
    const Kind* closest = nullptr;
    const WaitingJob* behind = nullptr;
    std::vector<Kind*> waits_for;
    for (const DeviceKind preferred : kKindsByPreference) {
      const auto found = kinds_.find(preferred);
      if (found == kinds_.end() || (job.cpu_only && preferred != DeviceKind::kCpu)) continue;
      Kind& kind = found->second;
      if (closest == nullptr || kind.total > closest->total) closest = &kind;
      if (!kind.CouldHold(job)) continue;
      if (kind.head != nullptr) behind = kind.head;
      if (kind.open.empty()) continue;
      std::vector<DevicePool*> usable = Wanted(kind, job);
      std::erase_if(usable, [&](const DevicePool* pool) { return !kind.open.contains(pool); });
      for (const uint32_t size : {job.tensor * job.context, job.tensor}) {
        const uint32_t groups = job.ranks / size;
        if (const auto chosen = Choose(usable, groups, size)) {
          kind.free -= job.ranks;
          return {job.id, Take(*chosen, groups, size), ""};
        }
      }
      waits_for.push_back(&kind);
    }
    for (Kind* kind : waits_for) Reserve(*kind, job);
    return {job.id, {}, WaitReason(job, closest, behind)};
  }

 private:
  // Leaves to the jobs behind `job` only those machines that `job` does not wait for. They cannot
  // delay it there.
  static void Reserve(Kind& kind, const WaitingJob& job) {
    if (kind.head == nullptr) kind.head = &job;
    for (const DevicePool* pool : Wanted(kind, job)) kind.open.erase(pool);
  }

  std::map<DeviceKind, Kind> kinds_;
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
    const uint32_t inner = job.tensor * job.context;
    CHECK(inner > 0 && job.ranks % inner == 0)
        << job.ranks << " ranks in groups of " << job.tensor << " x " << job.context;
    decisions.push_back(pass.Decide(job));
  }
  return decisions;
}

}  // namespace trainyard::controller
