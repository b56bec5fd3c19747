// Proves that no rank of any layout has two accesses to the same memory that nothing orders, under
// every family, axis, ZeRO, schedule, recomputation, precision, frozen part and tied weight, in
// training and validation; and that CheckOrder, which finds such accesses, finds each wait that a
// program lacks. tests/mutations/order.toml removes the waits of the engine itself.

#include "train/start/order_check.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <functional>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/rng.h"
#include "models/arch/registry.h"
#include "models/program/op.h"
#include "models/program/passes/passes.h"
#include "tests/models/tiny.h"
#include "tests/testing/printed_seed.h"
#include "tests/testing/published_table.h"
#include "tests/train/step/layouts.h"
#include "tests/train/step/scaled_recipes.h"
#include "train/config/resolve_model.h"
#include "train/config/validate.h"
#include "train/data/indexed.h"
#include "train/step/layout.h"
#include "train/step/rank_engine.h"

namespace trainyard::testing {
namespace {

// Small buckets, so that tiny models have several; a job with a name is a published one.
absl::Status CheckRank(const LayoutCase& c, int rank, DeviceKind device,
                       const std::function<void(Program&)>& edit = nullptr) {
  const std::unique_ptr<Model> model = c.make_model == nullptr ? nullptr : c.make_model(c.model);
  const EngineOptions options{.bucket_bytes = c.job.name.empty() ? 2048 : kBucketBytes,
                              .expert_rows = c.expert_rows,
                              .fuse = c.fuse,
                              .edit = edit,
                              .precision = c.precision,
                              .model = model.get()};
  absl::StatusOr<Layout> layout = LayoutOf(c.job, c.model);
  CHECK(layout.ok()) << layout.status();
  absl::StatusOr<RankPlan> plan = PlanRank(c.job, c.model, rank, device, options);
  CHECK(plan.ok()) << plan.status();
  return CheckOrder(plan->program, plan->memory, layout->schedule, device);
}

// The first and the last rank of each stage. Ranks of one stage run the same instances on memory of
// the same sizes.
std::vector<int> RanksOf(const LayoutCase& c) {
  const int stages = int(c.job.parallelism.pipeline), of_stage = int(c.job.devices) / stages;
  std::vector<int> ranks;
  for (int stage = 0; stage < stages; ++stage) {
    ranks.push_back(stage * of_stage);
    if (of_stage > 1) ranks.push_back((stage + 1) * of_stage - 1);
  }
  return ranks;
}

class OrderTest : public ::testing::TestWithParam<LayoutCase> {};

TEST_P(OrderTest, NothingIsLeftToLuck) {
  const uint64_t name = std::hash<std::string>()(GetParam().name());
  const std::vector<int> ends = RanksOf(GetParam());
  std::set<int> ranks(ends.begin(), ends.end());
  ranks.insert(int(RandomBits(PrintedSeed(), name, 0) % uint64_t(GetParam().job.devices)));
  for (const int rank : ranks) {
    const bool on_gpu = RandomBits(PrintedSeed(), name, uint64_t(rank) + 1) % 2 == 0;
    EXPECT_EQ(CheckRank(GetParam(), rank, on_gpu ? DeviceKind::kCuda : DeviceKind::kCpu),
              absl::OkStatus())
        << "rank " << rank << (on_gpu ? " on a GPU" : " on a CPU");
  }
}

// Draws the options that a layout does not have, others in each run: what goes along with a layout
// in turn (AllLayouts) meets each of them.
std::vector<LayoutCase> Varied(std::vector<LayoutCase> layouts) {
  constexpr PrecisionName kPrecisions[] = {PrecisionName::kBF16, PrecisionName::kF64,
                                           PrecisionName::kF32};
  constexpr RecomputeConfig kRecomputations[] = {
      {}, {.blocks = 1}, {.norms_and_activations = true}, {.blocks = 100}};
  for (size_t i = 0; i < layouts.size(); ++i) {
    LayoutCase& c = layouts[i];
    const auto draw = [&](uint64_t option) { return RandomBits(PrintedSeed(), option, i); };
    c.job.precision = kPrecisions[draw(1) % 3];
    if (draw(2) % 5 < 2) c.job.parallelism.reduction = Reduction::kBF16;
    c.job.recompute = kRecomputations[draw(3) % 4];
    c.job.optimizer.options = OptimizerOptions(*Optimizers()[draw(5) % Optimizers().size()]);
    if (draw(6) % 4 == 0) c.precision = draw(7) % 2 == 0 ? &DelayedScaling() : &CurrentScaling();
    const bool documents = c.model.family() != "dit" && c.model.family() != "nemotron_h";
    if (documents && draw(4) % 3 == 0) {
      c.job.data = IndexedData{.prefix = "corpus", .reset_attention_mask = true};
    }
  }
  return layouts;
}

std::string NameOf(const ::testing::TestParamInfo<LayoutCase>& info) {
  return absl::StrCat(info.param.name(), "_", Name(info.param.job.precision), "_", info.index);
}

INSTANTIATE_TEST_SUITE_P(Families, OrderTest,
                         ::testing::ValuesIn(OfEveryFamily([](const std::string& family) {
                           return Varied(SomeLayouts(family));
                         })),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(FrozenFamilies, OrderTest,
                         ::testing::ValuesIn(OfEveryFamily([](const std::string& family) {
                           return Varied(FrozenLayouts(family, 8, 11));
                         })),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Adapters, OrderTest,
                         ::testing::ValuesIn(OfEveryFamily([](const std::string& family) {
                           return Varied(AdaptedLayouts(family, 8, 29));
                         })),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(AdaptedExperts, OrderTest,
                         ::testing::ValuesIn(OfEveryFamily([](const std::string& family) {
                           return Varied(AdaptedExpertsLayouts(family, 8, 61));
                         })),
                         NameOf);

// The programs that people run: at their sizes, on their numbers of GPUs.
TEST(OrderCheckTest, NothingIsLeftToLuckInPublishedRuns) {
  const bool all = absl::NullSafeStringView(std::getenv("TRAINYARD_LAYOUTS")) == "all";
  int runs = 0;
  for (const PublishedRun& run : PublishedRuns()) {
    if (runs++ % 9 != 0 && !all) continue;
    const absl::StatusOr<JobConfig> job = ParseAndValidateJob(ReadPublished(run.name() + ".yaml"));
    ASSERT_TRUE(job.ok()) << job.status();
    LayoutCase c;
    c.job = *job;
    c.model = *ResolveModel(job->model);
    for (int rank : {0, int(job->devices) - 1}) {
      EXPECT_EQ(CheckRank(c, rank, DeviceKind::kCuda), absl::OkStatus()) << run.name();
    }
  }
  EXPECT_EQ(runs, 91);
}

// A wait or an event that a program has, and how to remove it.
struct Removal {
  std::string kind, name;
  std::function<void(Program&)> remove;
};

const char* KindOf(int event) { return event < kWindowEvents ? "window" : "gathered bucket"; }

// All of a rank's program, one at a time.
std::vector<Removal> RemovalsOf(const Program& program) {
  std::vector<Removal> removals;
  for (size_t i = 0; i < program.instances.size(); ++i) {
    const Instance& instance = program.instances[i];
    const std::string where =
        instance.when == When::kValidation ? "validation" : Name(instance.list);
    const auto add = [&](const std::string& kind, std::function<void(Instance&)> remove) {
      removals.push_back({kind + " in " + where, kind + " of " + program.Describe(instance),
                          [=](Program& p) { remove(p.instances[i]); }});
    };
    for (int event : instance.awaits) {
      add(absl::StrCat("wait for a ", KindOf(event)),
          [=](Instance& from) { std::erase(from.awaits, event); });
    }
    if (instance.signals != Instance::kNoEvent) {
      add(absl::StrCat("event of a ", KindOf(instance.signals)),
          [](Instance& from) { from.signals = Instance::kNoEvent; });
    }
    if (instance.op->name() == "wait") {
      removals.push_back({"wait for all in " + where, program.Describe(instance),
                          [=](Program& p) { p.instances.erase(p.instances.begin() + int(i)); }});
    }
  }
  return removals;
}

// Layouts that together need every kind of wait.
std::vector<LayoutCase> WaitingLayouts() {
  std::vector<LayoutCase> cases;
  for (const Zero zero : {Zero::kNone, Zero::kOptimizer, Zero::kFull}) {
    for (const char* schedule : {"ONE_F_ONE_B", "ZERO_BUBBLE"}) {
      for (const int64_t pipeline : {1, 2}) {
        LayoutCase c = MakeLayoutCase(
            "llama", {.pipeline = pipeline, .zero = zero, .schedule = FindSchedule(schedule)}, 2);
        AsDecoder(c.model).layers = 5;
        AsDecoder(c.model).tied = pipeline == 2;
        cases.push_back(std::move(c));
      }
    }
  }
  // The head alone: no instance of forward reads it in a step.
  cases.push_back(MakeLayoutCase("llama", {.zero = Zero::kOptimizer}, 2));
  cases.back().job.trainable = {"lm_head.weight"};
  // Biases alone: backward reads none of them, so it waits for no gather.
  cases.push_back(MakeLayoutCase("qwen2", {.zero = Zero::kFull}, 2));
  cases.back().job.trainable = {"*.bias"};
  AsDecoder(cases.back().model).layers = 5;
  return cases;
}

TEST(OrderCheckTest, FindsEachWaitAndEventThatAProgramLacks) {
  std::map<std::string, int> found;  // By kind.
  for (const LayoutCase& c : WaitingLayouts()) {
    for (int rank : RanksOf(c)) {
      const EngineOptions options{.bucket_bytes = 2048};
      const Program program = PlanRank(c.job, c.model, rank, DeviceKind::kCpu, options)->program;
      for (const Removal& removal : RemovalsOf(program)) {
        const absl::Status status = CheckRank(c, rank, DeviceKind::kCpu, removal.remove);
        found[removal.kind] += !status.ok();
        // With windows, waits for the gathers of other blocks often stand in for a wait.
        const bool needed =
            !program.has_windows() && program.buckets.size() > 0 &&
            !(c.job.parallelism.zero == Zero::kNone && removal.kind == "wait for all in prepare");
        EXPECT_TRUE(!status.ok() || !needed)
            << c.name() << ", rank " << rank << ", without " << removal.name;
      }
    }
  }
  for (const auto& [kind, times] : found) EXPECT_GT(times, 0) << kind;
  EXPECT_EQ(found.size(), 10u);
}

// The message is for whoever has to find the slip.
TEST(OrderCheckTest, NamesBothAccessesAndTheMemory) {
  LayoutCase c = MakeLayoutCase("llama", {.zero = Zero::kOptimizer}, 2);
  const absl::Status status = CheckRank(c, 1, DeviceKind::kCpu, [](Program& program) {
    for (Instance& instance : program.instances) instance.awaits.clear();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(::testing::HasSubstr("rank 1 of 2: nothing orders"),
                               ::testing::HasSubstr("all_gather, which writes (optimizer"),
                               ::testing::HasSubstr("EmbeddingForward, which reads (forward"),
                               ::testing::HasSubstr("model.embed_tokens.weight")));
}

}  // namespace
}  // namespace trainyard::testing
