// Measures how much data-parallel communication is hidden behind computation: 1 - (time the compute
// streams waited) / (time in collectives). Two ranks with a thread each communicate over loopback.
// The model is the quickstart's. Counters are milliseconds per step, summed over both ranks.
//
//   build/bench/overlap_bench --benchmark_repetitions=5
//
// Arguments: ZeRO (0 none, 1 optimizer, 2 full), gradients sent in bf16, micro-batches.

#include <benchmark/benchmark.h>

#include <map>
#include <thread>

#include "common/check.h"
#include "common/mutex.h"
#include "common/rng.h"
#include "kernels/collective/gloo.h"
#include "train/config/resolve_model.h"
#include "train/step/rank_engine.h"

namespace trainyard {
namespace {

constexpr int kRanks = 2;

class MemoryRendezvous final : public Rendezvous {
 public:
  absl::Status Set(const std::string& key, const std::string& value) override {
    const MutexLock lock(mutex_);
    values_[key] = value;
    changed_.NotifyAll();
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Get(const std::string& key, absl::Duration) override {
    const MutexLock lock(mutex_);
    while (!values_.contains(key)) changed_.Wait(mutex_);
    return values_[key];
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, std::string> values_ ABSL_GUARDED_BY(mutex_);
};

JobConfig QuickstartJob(const benchmark::State& state) {
  JobConfig job;
  job.model.architecture = {"llama",
                            {{"layers", 6},
                             {"hidden", 256},
                             {"ffn", 768},
                             {"heads", 8},
                             {"kv_heads", 4},
                             {"vocab", 256},
                             {"max_seq", 256}}};
  job.precision = PrecisionName::kBF16;
  job.parallelism.zero = Zero(state.range(0));
  job.parallelism.reduction = Reduction(state.range(1));
  job.batch = {.global = kRanks * 8 * state.range(2), .micro = 8, .sequence = 256};
  job.devices = kRanks;
  return job;
}

void AsRanks(const std::function<void(int)>& f) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) threads.emplace_back(f, rank);
  for (std::thread& thread : threads) thread.join();
}

struct Rank {
  std::unique_ptr<CollectiveWorld> world;
  std::unique_ptr<RankEngine> engine;

  // Adds the groups on one stream.
  double SecondsInCollectives(Stream stream) const {
    double seconds = 0;
    for (const auto& [group, collective] : engine->collectives()) {
      if (group.stream != stream) continue;
      for (size_t op = 0; op < kCollectiveOps; ++op) {
        seconds += collective->counts(CollectiveOp(op)).seconds;
      }
    }
    return seconds;
  }
};

void BM_Overlap(benchmark::State& state) {
  const JobConfig job = QuickstartJob(state);
  const auto model = ResolveModel(job.model);
  CHECK(model.ok()) << model.status();
  MemoryRendezvous rendezvous;
  std::vector<Rank> ranks(kRanks);
  StepBatch batch(size_t(state.range(2)));
  for (MicroBatchData& micro : batch) {
    std::vector<int32_t> tokens, targets;
    for (uint64_t i = 0; i < 8 * 256; ++i) {
      tokens.push_back(int32_t(RandomBits(1, 0, i) % 256));
      targets.push_back(int32_t(RandomBits(2, 0, i) % 256));
    }
    micro = {{"tokens", std::move(tokens)}, {"targets", std::move(targets)}};
  }
  AsRanks([&](int i) {
    Rank& rank = ranks[size_t(i)];
    rank.world = *CreateGlooWorld({.rank = i, .size = kRanks}, rendezvous);
    rank.engine = *RankEngine::Create(job, *model, {.threads = 1}, CpuBackend(), *rank.world);
    rank.engine->executable().WriteStepState({.seed = 1});
    rank.engine->executable().Run(Action::kInit);
    rank.engine->executable().Run(Action::kPrepare);
  });
  double waited = 0;
  Mutex mutex;
  const auto step = [&] {
    AsRanks([&](int i) {
      const StepState first = {.step = 1, .learning_rate = 1e-4, .loss_scale = 1e-4};
      const StepOutput output = ranks[size_t(i)].engine->runner().Step(first, batch, [] {});
      const MutexLock lock(mutex);
      waited += output.phases.grad_sync;
    });
  };
  const auto collectives = [&](Stream stream) {
    double seconds = 0;
    for (const Rank& rank : ranks) seconds += rank.SecondsInCollectives(stream);
    return seconds;
  };
  for (int i = 0; i < 3; ++i) step();
  waited = 0;
  const double hideable = collectives(Stream::kCommunication);
  const double exposed = collectives(Stream::kCompute);
  for (auto _ : state) step();
  // The compute stream waits for all communication that it does itself.
  const double itself = collectives(Stream::kCompute) - exposed;
  const double all = collectives(Stream::kCommunication) - hideable + itself;
  const double ms = 1e3 / double(state.iterations());
  state.counters["waited_ms"] = (waited + itself) * ms;
  state.counters["collectives_ms"] = all * ms;
  state.counters["hidden"] = 1 - (waited + itself) / all;
  AsRanks([&](int i) {
    ranks[size_t(i)].engine.reset();
    ranks[size_t(i)].world.reset();
  });
}

BENCHMARK(BM_Overlap)
    ->ArgNames({"zero", "bf16", "micro_batches"})
    ->ArgsProduct({{0, 1, 2}, {0, 1}, {1, 2}})
    ->Iterations(20)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace trainyard
