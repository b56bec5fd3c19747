// Proves R26: a bit that changes in the weights or the moments of a rank is found before anything
// comes of it, the rank is named, no checkpoint holds it, and the job goes on from the last one to
// the same end. A rank that computes something else than its replicas is named by them.

#include "train/trainer/state_check.h"

#include <gmock/gmock.h>

#include <iostream>
#include <mutex>
#include <random>
#include <thread>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/train/step/layouts.h"
#include "tests/train/step/run_job.h"
#include "train/config/resolve_model.h"
#include "train/step/rank_engine.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The CPU's. Each rank is a thread, whose first allocations are its master weights and moments.
class KnownMemory final : public Backend {
 public:
  KnownMemory() : Backend(CpuBackend()) {}
  absl::StatusOr<Buffer> Allocate(size_t bytes) const override {
    absl::StatusOr<Buffer> buffer = CpuBackend().Allocate(bytes);
    if (buffer.ok()) {
      const std::lock_guard lock(mutex_);
      allocated_[std::this_thread::get_id()].push_back({buffer->data(), bytes});
    }
    return buffer;
  }
  // In the calling thread's buffer.
  void FlipBit(FlatBuffer buffer, uint64_t random) const {
    const std::lock_guard lock(mutex_);
    const std::span<std::byte> bytes = allocated_[std::this_thread::get_id()][size_t(buffer)];
    bytes[random / 8 % (bytes.size() / 2)] ^= std::byte(1 << random % 8);  // No padding there.
  }

  size_t MemoryInUse() const override { return CpuBackend().MemoryInUse(); }
  void CopyToDevice(const Exec& e, void* to, const void* from, size_t n) const override {
    CpuBackend().CopyToDevice(e, to, from, n);
  }
  void CopyToHost(const Exec& e, void* to, const void* from, size_t n) const override {
    CpuBackend().CopyToHost(e, to, from, n);
  }
  void Synchronize(const Exec& exec) const override { CpuBackend().Synchronize(exec); }
  Exec NewExec(int threads) const override { return CpuBackend().NewExec(threads); }
  std::unique_ptr<Event> NewEvent() const override { return CpuBackend().NewEvent(); }

 private:
  mutable std::mutex mutex_;
  mutable std::map<std::thread::id, std::vector<std::span<std::byte>>> allocated_;
};

struct Flip {
  int rank = 0;
  int64_t step = 0;  // Before it.
  FlatBuffer buffer = FlatBuffer::kMaster;
  uint64_t bit = 0;
};

std::vector<RankRun> RunWithFlip(const JobConfig& job, int ranks, const Flip& flip) {
  const KnownMemory memory;
  return RunJob(job, {.ranks = ranks,
                      .backend = &memory,
                      .before_attempt = [&](int rank, int64_t step, int attempt, StepState&) {
                        if (rank != flip.rank || step != flip.step || attempt > 0) return;
                        memory.FlipBit(flip.buffer, flip.bit);
                      }});
}

TEST(StateCheck, EveryFlippedBitIsFoundAtTheNextUpdateAndItsRankIsNamed) {
  const uint64_t seed = std::random_device()();
  std::cout << "seed " << seed << '\n';
  std::mt19937_64 random(seed);
  constexpr const char* kWhat[] = {"master weights", "first moments", "second moments"};
  for (int i = 0; i < 100; ++i) {
    const std::string directory = FreshDirectory("flipped");
    JobConfig job = TinyJob(directory);
    job.precision = i % 2 == 0 ? PrecisionName::kF32 : PrecisionName::kF64;
    job.parallelism.zero =
        std::array{Zero::kNone, Zero::kOptimizer, Zero::kFull}[size_t(i) / 3 % 3];
    job.steps = 5;
    job.checkpoint->every_steps = 2;
    const int ranks = 1 << i / 9 % 3;
    const Flip flip{.rank = int(random() % uint64_t(ranks)),
                    .step = 2 + int64_t(random() % 4),
                    .buffer = FlatBuffer(i % 3),
                    .bit = random()};
    const auto runs = RunWithFlip(job, ranks, flip);
    SCOPED_TRACE(absl::StrCat("flip ", i, " of ", ranks, " ranks, ", Name(job.parallelism.zero)));
    const RankRun& hit = runs[size_t(flip.rank)];
    ASSERT_EQ(hit.status.code(), absl::StatusCode::kInternal) << hit.status << hit.thrown;
    const std::string changed =
        absl::StrCat(": ", kWhat[i % 3], " of rank ", flip.rank, " changed in memory ");
    const std::string found = absl::StrCat("step ", flip.step, changed, "since the update before");
    // Where no update was made from the flipped bit, all ranks find it together.
    const std::string not_finite =
        absl::StrCat("step ", flip.step - 1, changed, "after the update");
    const std::string said(hit.status.message());
    ASSERT_THAT(said, AnyOf(HasSubstr(found), HasSubstr(not_finite)));
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == flip.rank) continue;
      const RankRun& other = runs[size_t(rank)];
      if (absl::StrContains(said, found)) {
        EXPECT_THAT(other.thrown, HasSubstr("aborted"));
      } else {
        EXPECT_EQ(other.status.message(), said);
      }
    }
    const auto saved = CompleteCheckpoints(directory).value();
    ASSERT_EQ(saved.size(), size_t((flip.step - 1) / 2));
    ASSERT_TRUE(saved.empty() || Newest(directory).state().step < flip.step);
  }
}

// Bug it must catch: only remainders are looked at, and a weight of which a bit has flipped is
// saved.
TEST(StateCheck, ABitThatFlipsInCompactStateIsFound) {
  JobConfig job = TinyJob(FreshDirectory("compact_flip"));
  job.precision = PrecisionName::kBF16;
  job.optimizer.options["state"] = double(OptimizerState::kCompact);
  job.steps = 3;
  // There are no masters, so the first buffers are m, v, remainders, gradients and weights.
  for (const auto& [number, what] :
       {std::pair(0, "first moments"), std::pair(1, "second moments"),
        std::pair(2, "master weights"), std::pair(4, "master weights")}) {
    job.checkpoint->directory = FreshDirectory("compact_flip");
    const Flip flip{.step = 3, .buffer = FlatBuffer(number), .bit = 5};
    EXPECT_THAT(std::string(RunWithFlip(job, 1, flip)[0].status.message()),
                HasSubstr(absl::StrCat(what, " of rank 0 changed in memory")))
        << number;
  }
}

// Bug it must catch: the job is failed for good, as one whose loss diverges is.
TEST(StateCheck, AFlipThatMakesTheLossInfiniteIsNotTakenForADivergence) {
  JobConfig job = TinyJob(FreshDirectory("infinite"));
  job.steps = 5;
  job.parallelism.zero = Zero::kNone;
  constexpr uint64_t kTopOfExponent = 600 * 64 + 62;  // Of a weight between norms.
  for (const int ranks : {1, 2}) {
    const Flip flip{.rank = ranks - 1, .step = 4, .bit = kTopOfExponent};
    for (const RankRun& run : RunWithFlip(job, ranks, flip)) {
      EXPECT_THAT(std::string(run.status.message()),
                  HasSubstr(absl::StrCat("step 3: master weights of rank ", ranks - 1,
                                         " changed in memory after the update")));
    }
  }
}

TEST(StateCheck, AJobWhoseMemoryChangedGoesOnToTheSameEnd) {
  JobConfig job = TinyJob(FreshDirectory("undisturbed"));
  job.steps = 5;
  job.checkpoint->every_steps = 2;
  for (const RankRun& run : RunJob(job, {.ranks = 2})) ASSERT_TRUE(run.status.ok()) << run.status;
  const std::string want = NewestDigest(job.checkpoint->directory);
  job.checkpoint->directory = FreshDirectory("disturbed");
  RunWithFlip(job, 2, {.rank = 1, .step = 4, .bit = 7});
  const auto runs = RunJob(job, {.ranks = 2, .epoch = 2, .resume = true});
  EXPECT_EQ(runs[0].start.step, 2);
  EXPECT_EQ(NewestDigest(job.checkpoint->directory), want);
}

// Bug it must catch: what is found at the next update alone is in a checkpoint by then.
TEST(StateCheck, ABitThatChangesBetweenAnUpdateAndItsSaveIsInNoCheckpoint) {
  std::vector<std::pair<const Optimizer*, FlatBuffer>> saved;
  for (const Optimizer* const optimizer : Optimizers()) {
    saved.emplace_back(optimizer, FlatBuffer::kMaster);
    for (const FlatBuffer state : optimizer->states) saved.emplace_back(optimizer, state);
  }
  for (const auto& [optimizer, of_rank] : saved) {
    const FlatBuffer buffer = of_rank;
    JobConfig job = TinyJob(FreshDirectory("before_save"));
    job.optimizer.options = {*optimizer, {{"learning_rate", 1e-3}}};
    job.steps = 5;
    job.checkpoint->every_steps = 2;
    const KnownMemory memory;
    // Asked whether to stop, between the update and what comes of it.
    const auto flip = [&](int rank, int64_t step) {
      if (rank == 1 && step == 4) memory.FlipBit(buffer, 7);
      return false;
    };
    for (const RankRun& run : RunJob(job, {.ranks = 2, .backend = &memory, .stop = flip})) {
      EXPECT_EQ(run.status.code(), absl::StatusCode::kInternal) << run.status << run.thrown;
      EXPECT_THAT(
          std::string(run.status.message()),
          AllOf(HasSubstr("step 4: "), HasSubstr(" of rank 1 changed in memory after the update")));
    }
    EXPECT_EQ(Newest(job.checkpoint->directory).state().step, 2);
  }
}

// Bug it must catch: a job ends because ranks that own different parts "should hold the same". In
// the last of these layouts a rank's part of a bucket is padding.
TEST(StateCheck, ReplicasOwnTheSameParameters) {
  std::vector<LayoutCase> cases = OfEveryFamily(SomeLayouts);
  cases.push_back(MakeLayoutCase("dit", {.context = 4, .zero = Zero::kFull}, 2));
  using Part = std::tuple<std::string, Shape, Shape>;
  for (const LayoutCase& c : cases) {
    std::vector<std::vector<Part>> owned;
    std::vector<std::vector<int>> replicas;
    for (int rank = 0; rank < int(c.job.devices); ++rank) {
      const EngineOptions options{.bucket_bytes = 2048, .expert_rows = c.expert_rows};
      const Program program = PlanRank(c.job, c.model, rank, DeviceKind::kCpu, options)->program;
      replicas.push_back(ReplicasOf(program));
      std::vector<Part>& mine = owned.emplace_back();
      for (const ParameterBox& box : program.OwnedParameters()) {
        if (box.state) continue;
        mine.push_back({box.name, box.offset, box.shape});
      }
    }
    for (size_t rank = 0; rank < replicas.size(); ++rank) {
      for (const int other : replicas[rank]) {
        EXPECT_EQ(owned[size_t(other)], owned[rank]) << c.name() << ": " << other << ", " << rank;
        EXPECT_EQ(replicas[size_t(other)], replicas[rank]) << c.name();
      }
    }
  }
}

// Ranks with an engine each and a check, which step side by side.
class Ranks {
 public:
  Ranks(int data, int tensor, Zero zero) {
    job_ = TinyJob("");
    job_.parallelism.tensor = tensor;
    job_.parallelism.zero = zero;
    job_.devices = data * tensor;
    job_.batch = {.global = 12, .micro = 1, .sequence = 12};
  }
  struct Rank {
    RankEngine& engine;
    StateCheck& check;
    int number;
    // Of what it wrote, another update than its replicas' where the rate is another.
    void Step(int64_t step, double rate = 0.01) const {
      const int64_t rows = engine.part().rows;
      const MicroBatchData data{{"tokens", std::vector<int32_t>(size_t(rows), 1)},
                                {"targets", std::vector<int32_t>(size_t(rows), 2)}};
      const StepState state =
          engine.runner()
              .Step({.step = step, .learning_rate = rate, .loss_scale = 0.01},
                    StepBatch(engine.schedule().options.micro_batches, data), [] {})
              .state;
      const absl::Status status = check.AfterUpdate(state);
      EXPECT_TRUE(status.ok()) << status;
    }
  };
  // What the ranks' check says after `f`; the same on all.
  std::string Run(const std::function<void(const Rank&)>& f, bool look_at_memory) const {
    std::vector<std::string> said(size_t(job_.devices));
    const auto errors = RunWorlds(int(job_.devices), [&](CollectiveWorld& world) {
      const auto everyone = *world.Everyone();
      const ModelConfig model = *ResolveModel(job_.model);
      const auto engine = *RankEngine::Create(job_, model, {}, CpuBackend(), world);
      engine->executable().WriteStepState({.seed = 7});
      engine->executable().Run(Action::kInit);
      engine->executable().Run(Action::kPrepare);
      StateCheck check(engine->executable(), *everyone);
      f({*engine, check, world.rank()});
      const absl::Status status = check.Compare(7, look_at_memory);
      EXPECT_TRUE(status.ok() || absl::IsInternal(status)) << status;
      said[size_t(world.rank())] = std::string(status.message());
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
    for (const std::string& other : said) EXPECT_EQ(other, said[0]);
    return said[0];
  }

 private:
  JobConfig job_;
};

TEST(StateCheck, ARankThatComputesSomethingElseIsNamedByItsReplicas) {
  for (const int tensor : {1, 2}) {
    const int culprit = 1 * tensor;  // Of three, with the same part of each matrix.
    const std::string said = Ranks(3, tensor, Zero::kNone)
                                 .Run(
                                     [&](const Ranks::Rank& rank) {
                                       rank.Step(1);
                                       rank.Step(2, rank.number == culprit ? 0.02 : 0.01);
                                       rank.Step(3);
                                     },
                                     false);
    EXPECT_THAT(said, AllOf(HasSubstr(absl::StrCat("step 7: master weights")),
                            HasSubstr(absl::StrCat(" of rank ", culprit, " are not")),
                            HasSubstr(absl::StrCat("ranks 0, ", 2 * tensor, ";"))));
  }
}

TEST(StateCheck, OfTwoThatDifferBothAreNamed) {
  const auto step = [](const Ranks::Rank& rank) { rank.Step(1, 0.01 * (1 + rank.number)); };
  EXPECT_THAT(Ranks(2, 1, Zero::kNone).Run(step, false),
              HasSubstr("step 7: ranks 0, 1 should hold the same, and no majority of them does"));
  // Each its own part, of which there is no other.
  EXPECT_THAT(Ranks(2, 1, Zero::kOptimizer).Run(step, false), IsEmpty());
}

// What a checkpoint would read.
TEST(StateCheck, ABitThatChangesBeforeASaveIsFoundByAll) {
  for (const Zero zero : {Zero::kNone, Zero::kOptimizer, Zero::kFull}) {
    const auto flip = [](const Ranks::Rank& rank) {
      rank.Step(1);
      if (rank.number != 2) return;
      const Executable& executable = rank.engine.executable();
      const ParameterBox box = executable.program().OwnedParameters().back();
      static_cast<std::byte*>(executable.flat(FlatBuffer::kSecondMoment, box.flat).data)[3] ^=
          std::byte{16};
    };
    EXPECT_THAT(Ranks(3, 1, zero).Run(flip, true),
                HasSubstr("step 7: second moments of rank 2 changed in memory after the update"));
    EXPECT_THAT(Ranks(3, 1, zero).Run(flip, false), IsEmpty());
    EXPECT_THAT(Ranks(3, 1, zero).Run([](const Ranks::Rank& rank) { rank.Step(1); }, true),
                IsEmpty());
  }
}

}  // namespace
}  // namespace trainyard::testing
