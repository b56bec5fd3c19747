// Proves that what a job says of its program, beside its sizes, is in each rank's: what is computed
// again, and how context ranks come to each other's keys and values. All of it gives the same bits,
// so that no result shows a setting that is dropped.

#include "train/step/rank_engine.h"

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

}  // namespace
}  // namespace trainyard::testing
