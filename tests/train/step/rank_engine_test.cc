// Proves that what a job says of its program, beside its sizes, is in each rank's: what is computed
// again, and how context ranks come to each other's keys and values. All of it gives the same bits,
// so that no result shows a setting that is dropped. Also, which ranks an engine connects.

#include "train/step/rank_engine.h"

#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/train/step/run_job.h"
#include "train/config/resolve_model.h"
#include "train/step/communication.h"

namespace trainyard::testing {
namespace {

// Calls f with the engine of each of the job's ranks.
void WithEngines(const JobConfig& job, const std::function<void(RankEngine&)>& f) {
  const absl::StatusOr<ModelConfig> model = ResolveModel(job.model);
  ASSERT_TRUE(model.ok()) << model.status();
  RunWorlds(int(job.devices), [&](CollectiveWorld& world) {
    const auto engine = RankEngine::Create(job, *model, {}, CpuBackend(), world);
    ASSERT_TRUE(engine.ok()) << engine.status();
    f(**engine);
  });
}

size_t PlannedBytes(const RecomputeConfig& recompute) {
  JobConfig job = TinyJob("");
  job.model.architecture->fields["layers"] = 4;
  job.recompute = recompute;
  size_t bytes = 0;
  WithEngines(job, [&](RankEngine& engine) { bytes = engine.executable().plan().total_bytes(); });
  return bytes;
}

TEST(RankEngine, WhatIsComputedAgainNeedsNoMemory) {
  const size_t kept = PlannedBytes({}), norms = PlannedBytes({.norms_and_activations = true}),
               blocks = PlannedBytes({.blocks = 3}),
               both = PlannedBytes({.blocks = 3, .norms_and_activations = true});
  EXPECT_LT(norms, kept);
  EXPECT_LT(blocks, kept);
  EXPECT_LT(both, blocks);
}

// What each rank of two says to the other in a step.
std::set<CollectiveOp> SaidInContext(ContextExchange exchange) {
  JobConfig job = TinyJob("");
  job.devices = job.parallelism.context = 2;
  job.parallelism.context_exchange = exchange;
  job.parallelism.zero = Zero::kNone;  // Which gathers weights otherwise.
  std::mutex mutex;
  std::set<CollectiveOp> said;
  WithEngines(job, [&](RankEngine& engine) {
    const std::lock_guard lock(mutex);
    for (const auto& [key, communication] :
         StepCommunication(engine.executable().program(), engine.schedule())) {
      if (key.first.axes == AxisSet(Axis::kContext)) said.insert(communication.op);
    }
  });
  return said;
}

TEST(RankEngine, ContextRanksExchangeAsTheJobSays) {
  const std::set<CollectiveOp> ring = SaidInContext(ContextExchange::kRing),
                               gathered = SaidInContext(ContextExchange::kAllGather);
  EXPECT_TRUE(ring.contains(CollectiveOp::kSendReceive));
  EXPECT_FALSE(ring.contains(CollectiveOp::kAllGather));
  EXPECT_TRUE(gathered.contains(CollectiveOp::kAllGather));
  EXPECT_FALSE(gathered.contains(CollectiveOp::kSendReceive));
}

using Pairs = std::set<std::pair<int, int>>;  // From and to, by world rank.

// How many ranks name a pair of a group.
using PairCounts = std::map<std::pair<Group, std::pair<int, int>>, int>;

// The pairs that the ranks of a job connect.
struct Connected {
  PairCounts messages, exchanges;
};
Connected ConnectedBy(const JobConfig& job) {
  std::mutex mutex;
  Connected connected;
  WithEngines(job, [&](RankEngine& engine) {
    const std::lock_guard lock(mutex);
    for (const auto& entry : ConnectionsOf(engine.executable().program(), engine.schedule())) {
      const std::vector<int>& members = engine.collectives().at(entry.first)->members();
      const auto count = [&](const std::set<RankPair>& pairs, PairCounts& counts) {
        for (const RankPair& pair : pairs) {
          ++counts[{entry.first, {members[size_t(pair.from)], members[size_t(pair.to)]}}];
        }
      };
      count(entry.second.messages, connected.messages);
      count(entry.second.exchanges, connected.exchanges);
    }
  });
  return connected;
}
// The pairs of a kind, which both of their ranks must name.
Pairs PairsOf(const PairCounts& counts) {
  Pairs pairs;
  for (const auto& [key, ranks] : counts) {
    EXPECT_EQ(ranks, 2) << "from " << key.second.first << " to " << key.second.second;
    pairs.insert(key.second);
  }
  return pairs;
}

JobConfig JobOfFour() {
  JobConfig job = TinyJob("");
  job.devices = 4;
  job.batch.sequence = 16;
  job.model.architecture->fields["layers"] = 4;
  return job;
}

// That these are all which a step uses is proven by every test that trains: with any other pair an
// operation ends the program.
TEST(RankEngine, ConnectsThePairsOfItsRingsAndStagesAndNoOthers) {
  const Pairs ring = {{0, 1}, {1, 2}, {2, 3}, {3, 0}};
  JobConfig job = JobOfFour();
  job.parallelism.context = 4;
  Connected connected = ConnectedBy(job);
  EXPECT_EQ(PairsOf(connected.messages), ring);
  EXPECT_EQ(PairsOf(connected.exchanges), ring);

  job = JobOfFour();
  job.parallelism.tensor = 4;  // Parts of sums go straight to their rank.
  connected = ConnectedBy(job);
  EXPECT_EQ(PairsOf(connected.messages).size(), 4 * 3u);
  EXPECT_EQ(PairsOf(connected.exchanges), Pairs());

  job = JobOfFour();
  job.parallelism.pipeline = 4;
  connected = ConnectedBy(job);
  EXPECT_EQ(PairsOf(connected.messages), Pairs({{0, 1}, {1, 0}, {1, 2}, {2, 1}, {2, 3}, {3, 2}}));
  EXPECT_EQ(PairsOf(connected.exchanges), Pairs());

  job = JobOfFour();
  job.parallelism.pipeline = job.parallelism.context = 2;
  connected = ConnectedBy(job);
  EXPECT_EQ(PairsOf(connected.messages),
            Pairs({{0, 1}, {1, 0}, {2, 3}, {3, 2}, {0, 2}, {2, 0}, {1, 3}, {3, 1}}));
  EXPECT_EQ(PairsOf(connected.exchanges), Pairs({{0, 1}, {1, 0}, {2, 3}, {3, 2}}));

  job = JobOfFour();  // Rows go from every rank to that of their expert.
  job.model.architecture->family = "mixtral";
  auto& fields = job.model.architecture->fields;
  fields["moe.experts"] = 4, fields["moe.top_k"] = 2, fields["moe.expert_ffn"] = 16;
  job.parallelism.expert = 4;
  connected = ConnectedBy(job);
  EXPECT_EQ(PairsOf(connected.messages), Pairs());
  EXPECT_EQ(PairsOf(connected.exchanges).size(), 4 * 3u);

  job = JobOfFour();  // Sums are collectives.
  connected = ConnectedBy(job);
  EXPECT_EQ(PairsOf(connected.messages), Pairs());
}

}  // namespace
}  // namespace trainyard::testing
