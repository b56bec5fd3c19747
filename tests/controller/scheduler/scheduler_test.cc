// Proves that gangs are placed whole, in order, packed, without over-commitment and without
// starvation.

#include "controller/scheduler/scheduler.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <random>
#include <set>

namespace trainyard::controller {
namespace {

using ::testing::HasSubstr;

DevicePool Machine(const std::string& id, uint32_t total, std::vector<uint32_t> free) {
  return {.worker_id = id, .kind = DeviceKind::kCpu, .total = total, .free = std::move(free)};
}

std::vector<uint32_t> Devices(uint32_t n) {
  std::vector<uint32_t> list(n);
  for (uint32_t i = 0; i < n; ++i) list[i] = i;
  return list;
}

DevicePool Idle(const std::string& id, uint32_t total) {
  return Machine(id, total, Devices(total));
}

WaitingJob Wants(const std::string& id, uint64_t number, uint32_t ranks, uint32_t tensor = 1,
                 int32_t priority = 0) {
  return {.id = id,
          .priority = priority,
          .number = number,
          .ranks = ranks,
          .tensor = tensor,
          .context = 1,
          .cpu_only = false};
}
WaitingJob WantsContext(uint64_t number, uint32_t ranks, uint32_t tensor, uint32_t context) {
  WaitingJob job = Wants("j" + std::to_string(number), number, ranks, tensor);
  job.context = context;
  return job;
}

std::map<std::string, Decision> ById(const std::vector<Decision>& decisions) {
  std::map<std::string, Decision> map;
  for (const Decision& decision : decisions) map[decision.job_id] = decision;
  return map;
}

TEST(Scheduler, SaysWhatAJobWaitsFor) {
  const auto got = ById(Schedule({Wants("a", 1, 4)}, {Machine("w", 2, {1})}));
  EXPECT_TRUE(got.at("a").ranks.empty());
  EXPECT_EQ(got.at("a").reason, "needs 4 devices, cluster has 2, 1 free");
  const auto after = ById(Schedule({Wants("a", 1, 2, 2), Wants("b", 2, 4)}, {Idle("w", 4)}));
  EXPECT_FALSE(after.at("a").ranks.empty());
  EXPECT_EQ(after.at("b").reason, "needs 4 devices, cluster has 4, 2 free");
  EXPECT_THAT(ById(Schedule({Wants("a", 1, 1)}, {})).at("a").reason, HasSubstr("cluster has none"));
}

TEST(Scheduler, NamesNoJobsOfOtherNamespaces) {
  std::vector<WaitingJob> jobs = {Wants("first", 1, 2), Wants("same", 2, 1), Wants("other", 3, 1)};
  for (WaitingJob& job : jobs) job.name_space = job.id == "other" ? "product" : "research";
  const auto got = ById(Schedule(jobs, {Machine("w", 2, {0})}));
  EXPECT_THAT(got.at("same").reason, HasSubstr("behind first"));
  EXPECT_THAT(got.at("other").reason, HasSubstr("behind a job of another namespace"));
}

TEST(Scheduler, PriorityGoesFirstAndThenAge) {
  const auto got = ById(Schedule(
      {Wants("old", 1, 1), Wants("urgent", 3, 1, 1, 5), Wants("new", 2, 1)}, {Idle("w", 2)}));
  EXPECT_FALSE(got.at("urgent").ranks.empty());
  EXPECT_FALSE(got.at("old").ranks.empty());
  EXPECT_TRUE(got.at("new").ranks.empty());
}

TEST(Scheduler, UsesTheFewestMachinesAndFillsThemBest) {
  const auto got =
      Schedule({Wants("a", 1, 2)}, {Idle("big", 4), Idle("fits", 2), Idle("small", 1)});
  for (const RankPlacement& rank : got[0].ranks) EXPECT_EQ(rank.worker_id, "fits");
  const auto wide = Schedule({Wants("a", 1, 5)}, {Idle("one", 1), Idle("big", 4), Idle("two", 2)});
  std::set<std::string> machines;
  for (const RankPlacement& rank : wide[0].ranks) machines.insert(rank.worker_id);
  EXPECT_THAT(machines, ::testing::ElementsAre("big", "one"));
}

TEST(Scheduler, TensorGroupsLieWithinOneMachine) {
  const auto got = Schedule({Wants("a", 1, 4, 2)}, {Idle("x", 3), Idle("y", 3)});
  ASSERT_EQ(got[0].ranks.size(), 4u);
  EXPECT_EQ(got[0].ranks[0].worker_id, got[0].ranks[1].worker_id);
  EXPECT_EQ(got[0].ranks[2].worker_id, got[0].ranks[3].worker_id);
  EXPECT_TRUE(Schedule({Wants("a", 1, 4, 4)}, {Idle("x", 3), Idle("y", 3)})[0].ranks.empty());
}

// Catches a context group that is split although there was room for it in one piece, and a job that
// waits for such room although it could run without.
TEST(Scheduler, ContextGroupsLieWithinOneMachineWhereThereIsRoom) {
  const auto machines = [](const WaitingJob& job, const std::vector<DevicePool>& pools) {
    std::string list;
    const std::vector<Decision> decisions = Schedule({job}, pools);
    for (const RankPlacement& rank : decisions[0].ranks) list += rank.worker_id;
    return list;
  };
  // By tensor groups alone it would be xxxxxxyy.
  EXPECT_EQ(machines(WantsContext(1, 8, 2, 2), {Idle("x", 6), Idle("y", 6)}), "xxxxyyyy");
  EXPECT_EQ(machines(WantsContext(1, 8, 2, 2), {Idle("x", 6), Idle("y", 2)}), "xxxxxxyy");
  EXPECT_EQ(machines(WantsContext(1, 4, 1, 4), {Idle("x", 3), Idle("y", 3)}), "xxxy");
  EXPECT_EQ(machines(WantsContext(1, 8, 4, 2), {Idle("x", 6), Idle("y", 2)}), "");
}

TEST(Scheduler, JobThatCouldFitKeepsThoseBehindItWaiting) {
  const auto got =
      ById(Schedule({Wants("large", 1, 2), Wants("small", 2, 1)}, {Machine("w", 2, {0})}));
  EXPECT_TRUE(got.at("small").ranks.empty());
  EXPECT_THAT(got.at("small").reason, HasSubstr("behind large"));
  // But one that is larger than the cluster keeps nobody waiting.
  const auto huge = ById(Schedule({Wants("huge", 1, 3), Wants("small", 2, 1)}, {Idle("w", 2)}));
  EXPECT_FALSE(huge.at("small").ranks.empty());
}

TEST(Scheduler, GangsKeepToOneKindOfDevice) {
  DevicePool gpu = Idle("gpu", 2);
  gpu.kind = DeviceKind::kCuda;
  WaitingJob f64 = Wants("f64", 2, 1);
  f64.cpu_only = true;
  const auto got = ById(Schedule({Wants("a", 1, 2), f64, Wants("b", 3, 3)}, {gpu, Idle("cpu", 2)}));
  EXPECT_EQ(got.at("a").ranks[0].worker_id, "gpu");
  EXPECT_EQ(got.at("f64").ranks[0].worker_id, "cpu");
  EXPECT_TRUE(got.at("b").ranks.empty()) << "4 devices in all, but of two kinds";
}

// A cluster that lives: jobs come and end, machines come and go.
struct Cluster {
  std::map<std::string, uint32_t> machines;                      // Id to size.
  std::map<std::pair<std::string, uint32_t>, std::string> held;  // Device to job.
  std::map<std::string, WaitingJob> waiting;
  uint64_t next = 1;

  std::vector<DevicePool> Pools() const {
    std::vector<DevicePool> pools;
    for (const auto& [id, size] : machines) {
      DevicePool pool = Machine(id, size, {});
      for (uint32_t i = 0; i < size; ++i) {
        if (!held.contains({id, i})) pool.free.push_back(i);
      }
      pools.push_back(pool);
    }
    return pools;
  }
  void End(const std::string job) {  // A copy: callers name an element of what is erased.
    std::erase_if(held, [&](const auto& entry) { return entry.second == job; });
  }
};

// Without the machines `except`, which are ids.
bool CouldFit(const Cluster& cluster, const WaitingJob& job,
              const std::set<std::string>& except = {}) {
  uint32_t groups = 0;
  for (const auto& [id, size] : cluster.machines) {
    if (!except.contains(id)) groups += size / job.tensor;
  }
  return groups >= job.ranks / job.tensor;
}

// The machines that the job waits for and is placed on.
std::set<std::string> Wanted(const Cluster& cluster, const WaitingJob& job) {
  const bool avoids = CouldFit(cluster, job, job.avoid);
  std::set<std::string> ids;
  for (const auto& [id, size] : cluster.machines) {
    if (!avoids || !job.avoid.contains(id)) ids.insert(id);
  }
  return ids;
}

// Groups of `size` ranks that the free devices of the machines `ids` hold in one piece each.
uint32_t FreeGroups(const Cluster& cluster, const std::set<std::string>& ids, uint32_t size) {
  uint32_t groups = 0;
  for (const DevicePool& pool : cluster.Pools()) {
    if (ids.contains(pool.worker_id)) groups += uint32_t(pool.free.size()) / size;
  }
  return groups;
}

// `open` has the machines that no earlier job waits for.
void Check(Cluster& cluster, const Decision& decision, const std::set<std::string>& open) {
  const WaitingJob job = cluster.waiting.at(decision.job_id);
  const uint32_t inner = job.tensor * job.context;
  const std::set<std::string> wanted = Wanted(cluster, job);
  std::set<std::string> usable;
  std::set_intersection(wanted.begin(), wanted.end(), open.begin(), open.end(),
                        std::inserter(usable, usable.end()));
  const bool room = FreeGroups(cluster, usable, inner) >= job.ranks / inner;
  if (decision.ranks.empty()) {
    ASSERT_FALSE(decision.reason.empty());
    ASSERT_FALSE(room) << "waits although there is room";
    return;
  }
  ASSERT_EQ(decision.ranks.size(), job.ranks) << "partial gang";
  for (uint32_t i = 0; i < job.ranks; ++i) {
    const RankPlacement& rank = decision.ranks[i];
    ASSERT_TRUE(wanted.contains(rank.worker_id)) << "a machine that the job avoids";
    ASSERT_TRUE(open.contains(rank.worker_id)) << "overtook a job that waits for this machine";
    ASSERT_LT(rank.device, cluster.machines.at(rank.worker_id));
    ASSERT_TRUE(cluster.held.emplace(std::pair(rank.worker_id, rank.device), job.id).second)
        << "over-commitment";
    ASSERT_EQ(rank.worker_id, decision.ranks[i - i % job.tensor].worker_id) << "split group";
    ASSERT_TRUE(!room || rank.worker_id == decision.ranks[i - i % inner].worker_id)
        << "split context group";
  }
  cluster.waiting.erase(job.id);
}

void RandomEvent(Cluster& cluster, std::mt19937& random) {
  const auto below = [&](uint32_t n) { return uint32_t(random() % n); };
  switch (below(6)) {
    case 0:
    case 1: {
      const uint32_t tensor = 1u << below(3), context = 1 + below(3);
      const uint32_t ranks = tensor * context * (1 + below(4));
      WaitingJob job = WantsContext(cluster.next++, ranks, tensor, context);
      job.priority = int32_t(below(3));
      for (uint32_t i = 0; i < 6; ++i) {
        if (below(6) == 0) job.avoid.insert("w" + std::to_string(i));
      }
      cluster.waiting[job.id] = job;
      break;
    }
    case 2:
      cluster.machines["w" + std::to_string(below(6))] = 1 + below(8);
      break;
    case 3: {
      const std::string id = "w" + std::to_string(below(6));
      cluster.machines.erase(id);
      std::set<std::string> dead;
      for (const auto& [device, job] : cluster.held) {
        if (device.first == id) dead.insert(job);
      }
      for (const std::string& job : dead) cluster.End(job);
      break;
    }
    default:
      if (!cluster.held.empty()) {
        cluster.End(std::next(cluster.held.begin(), below(uint32_t(cluster.held.size())))->second);
      }
  }
  std::erase_if(cluster.held, [&](const auto& entry) {  // A machine came back smaller.
    const auto machine = cluster.machines.find(entry.first.first);
    return machine == cluster.machines.end() || entry.first.second >= machine->second;
  });
}

// Catches over-commitment, partial gangs, split tensor groups, and a later job that is placed on a
// machine for which an earlier job waits. Tried by letting the head of the queue not block.
TEST(Scheduler, HoldsItsPromisesOverRandomEvents) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Cluster cluster;
    for (int i = 0; i < 300; ++i) {
      RandomEvent(cluster, random);
      std::vector<WaitingJob> jobs;
      for (const auto& [id, job] : cluster.waiting) jobs.push_back(job);
      std::set<std::string> open;
      for (const auto& [id, size] : cluster.machines) open.insert(id);
      for (const Decision& decision : Schedule(jobs, cluster.Pools())) {
        const WaitingJob job = cluster.waiting.at(decision.job_id);
        ASSERT_NO_FATAL_FAILURE(Check(cluster, decision, open));
        if (!decision.ranks.empty() || !CouldFit(cluster, job)) continue;
        for (const std::string& id : Wanted(cluster, job)) open.erase(id);
      }
    }
    // Once everything that runs has ended, the head of the queue gets its devices.
    cluster.held.clear();
    std::vector<WaitingJob> jobs;
    for (const auto& [id, job] : cluster.waiting) jobs.push_back(job);
    for (const Decision& decision : Schedule(jobs, cluster.Pools())) {
      if (!CouldFit(cluster, cluster.waiting.at(decision.job_id))) continue;
      ASSERT_FALSE(decision.ranks.empty()) << "starved: " << decision.reason;
      break;
    }
  }
}

// A host that failed a job twice: left out, unless the job fits nowhere else.
TEST(Schedule, AvoidedMachinesAreLeftOutAsLongAsTheOthersCouldHoldTheJob) {
  WaitingJob job = Wants("j", 1, 2);
  job.avoid = {"bad"};
  auto decided = ById(Schedule({job}, {Idle("bad", 4), Idle("good", 2)}));
  EXPECT_EQ(decided["j"].ranks.at(0).worker_id, "good");
  EXPECT_EQ(decided["j"].ranks.at(1).worker_id, "good");
  decided = ById(Schedule({job}, {Idle("bad", 4), Machine("good", 2, {1})}));
  EXPECT_TRUE(decided["j"].ranks.empty()) << "it waits for the good machine";
  decided = ById(Schedule({job}, {Idle("bad", 4), Idle("good", 1)}));
  EXPECT_EQ(decided["j"].ranks.size(), 2u) << "without the bad machine it would never fit";
}

// Catches small jobs that go on taking the one machine which a gang with strikes waits for, and a
// machine that stands idle for a job that avoids it.
TEST(Schedule, JobsBehindOneThatAvoidsAMachineGetThatMachineAlone) {
  WaitingJob gang = Wants("gang", 1, 2);
  gang.avoid = {"bad"};
  const std::vector<WaitingJob> jobs = {gang, Wants("small", 2, 1), Wants("last", 3, 2)};
  auto decided = ById(Schedule(jobs, {Machine("bad", 2, {1}), Machine("good", 2, {1})}));
  EXPECT_EQ(
      decided["gang"].reason,
      "needs 2 devices, cluster has 4, 2 free; avoids bad, where attempts of this job failed");
  ASSERT_EQ(decided["small"].ranks.size(), 1u);
  EXPECT_EQ(decided["small"].ranks[0].worker_id, "bad");
  EXPECT_THAT(decided["last"].reason, HasSubstr("behind gang"));
  decided = ById(Schedule(jobs, {Machine("bad", 2, {}), Machine("good", 2, {1})}));
  EXPECT_THAT(decided["small"].reason, HasSubstr("behind gang"));
  // A job that waits for the bad machine, too, keeps it.
  decided = ById(Schedule({gang, Wants("wide", 2, 2), Wants("small", 3, 1)},
                          {Machine("bad", 2, {1}), Machine("good", 2, {1})}));
  EXPECT_TRUE(decided["small"].ranks.empty());
}

}  // namespace
}  // namespace trainyard::controller
