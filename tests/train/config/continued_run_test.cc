// Proves what a job may change of the run that it continues: which changes are named, which are
// refused because samples would be repeated or skipped, and which do not fit the run's state.

#include "train/config/continued_run.h"

#include <gmock/gmock.h>

#include <functional>

#include "absl/strings/str_cat.h"
#include "train/config/parse.h"
#include "train/config/resolved_job.h"
#include "train/config/validate.h"
#include "train/data/blend.h"
#include "train/data/synthetic.h"

namespace trainyard {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kJob[] = R"(
name: run
model:
  preset: qwen3-30b-a3b
  overrides: {layers: 2, hidden: 32, ffn: 64, heads: 4, kv_heads: 2, vocab: 256, max_seq: 64}
batch: {global: 8, micro: 2, sequence: 16}
data: {blend: {datasets: [{weight: 1, path: a.txt}, {weight: 2, path: b.txt}]}}
optimizer: {adamw: {learning_rate: 1e-2}}
steps: 10
checkpoint: {directory: ck}
)";

JobConfig Job(const char* text = kJob) {
  absl::StatusOr<JobConfig> job = ParseAndValidateJob(text);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? *job : JobConfig();
}

std::vector<std::string> Changes(const std::function<void(JobConfig&)>& change) {
  JobConfig now = Job();
  change(now);
  std::vector<std::string> described;
  for (const RunChange& found : ChangesOfRun(Job(), now)) {
    // In the order of ChangeEffect. What begins a run is named as what trains it.
    constexpr const char* kEffects[] = {
        "?: ", "nothing: ", "training: ", "samples: ", "state: ", "training: "};
    described.push_back(kEffects[size_t(found.effect)] + Described(found));
  }
  return described;
}

// Moments are rounded or widened as they are loaded.
TEST(ContinuedRun, TheStateOfTheOptimizerMayBecomeCompact) {
  EXPECT_THAT(Changes([](JobConfig& job) { job.optimizer.options["state"] = 1; }),
              ElementsAre(R"(training: optimizer.adamw.state: "F32" before, "COMPACT" now)"));
}

TEST(ContinuedRun, HasNoChangeOfWhatDoesNotConcernTraining) {
  EXPECT_THAT(Changes([](JobConfig& job) {
                job.name = "more";
                job.steps = 20;
                job.devices = 2;
                job.parallelism.pipeline = 2;
                job.parallelism.zero = Zero::kNone;
                job.recompute.blocks = 1;
                job.optimizer.offload = true;
                job.checkpoint->directory = "moved";
                job.checkpoint->every_steps = 3;
                job.labels["a"] = "b";
                job.priority = 3;
                job.max_restarts = 1;
                job.continues = ContinuesConfig{.job = "j-1", .epoch = 3, .allow = {}};
              }),
              IsEmpty());
}

// Bug it must catch: whoever names another model to begin with believes that it is trained.
TEST(ContinuedRun, SaysThatOtherParametersAreNotRead) {
  constexpr char kSuffix[] = "; the run goes on with its own parameters, not with those";
  EXPECT_THAT(Changes([](JobConfig& job) { job.init_from = "other"; }),
              ElementsAre(absl::StrCat(R"(training: init_from: "" before, "other" now)", kSuffix)));
  JobConfig imported = Job(ResolvedJobText(Job()).c_str());
  imported.model.import_path = "first";
  JobConfig other = imported;
  other.model.import_path = "other";
  const std::vector<RunChange> changes = ChangesOfRun(imported, other);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(Described(changes[0]),
            absl::StrCat(R"(model.import: "first" before, "other" now)", kSuffix));
  EXPECT_THAT(ChangesOfRun(imported, Job()), IsEmpty());
}

TEST(ContinuedRun, NamesWhatIsTrainedDifferentlyWithBothValues) {
  EXPECT_THAT(Changes([](JobConfig& job) { job.optimizer.options["learning_rate"] = 1e-3; }),
              ElementsAre("training: optimizer.adamw.learning_rate: 0.01 before, 0.001 now"));
  EXPECT_THAT(Changes([](JobConfig& job) { job.batch.global = 16; }),
              ElementsAre("training: batch.global: 8 before, 16 now"));
  EXPECT_THAT(Changes([](JobConfig& job) { job.optimizer.clip_norm = 0; }),
              ElementsAre("training: optimizer.clip_norm: 1.0 before, 0.0 now"));
  EXPECT_THAT(Changes([](JobConfig& job) { job.precision = PrecisionName::kF32; }),
              ElementsAre("training: precision: \"BF16\" before, \"F32\" now"));
  EXPECT_THAT(
      Changes([](JobConfig& job) { job.data.As<BlendData>().datasets[1].path = "copy.txt"; }),
      ElementsAre(HasSubstr("training: data.blend.datasets[1].path: \"b.txt\" before")));
  EXPECT_THAT(Changes([](JobConfig& job) { job.data.As<BlendData>().eod_mask_loss = true; }),
              ElementsAre("training: data.blend.eod_mask_loss: false before, true now"));
  EXPECT_THAT(Changes([](JobConfig& job) { job.model.overrides->fields["moe.aux_loss"] = 0.5; }),
              ElementsAre(HasSubstr("training: model.architecture.moe.aux_loss: ")));
}

// Bug it must catch: on more data ranks, the loss for the load of experts is another one, and
// nothing says so.
TEST(ContinuedRun, NamesOverHowManySequencesExpertsAreBalanced) {
  const auto with = [](const char* scope, int64_t micro) {
    return Changes([&](JobConfig& job) {
      job.devices = 2;
      job.batch.micro = micro;
      job.model.overrides->fields["moe.aux_loss_scope"] = std::string(scope);
    });
  };
  const auto balanced = HasSubstr(
      "batch.micro x data ranks: 2 before, 4 now; moe.aux_loss balances so many sequences");
  EXPECT_THAT(with("BATCH", 2), ElementsAre(balanced));
  EXPECT_THAT(with("MODEL", 2), Contains(balanced));
  EXPECT_THAT(with("SEQUENCE", 2), Not(Contains(HasSubstr("data ranks"))));
  EXPECT_THAT(with("BATCH", 1), ElementsAre(HasSubstr("batch.micro: 2 before, 1 now")));
}

// Bug it must catch: moments that another optimizer has made are taken for one's own.
TEST(ContinuedRun, RefusesAnotherOptimizer) {
  EXPECT_THAT(Changes([](JobConfig& job) {
                job.optimizer.options = {LionOptimizer(), {{"learning_rate", 1e-3}}};
              }),
              ElementsAre("state: optimizer: adamw before, lion now"));
}

// Bug it must catch: another alpha multiplies what the run has learnt.
TEST(ContinuedRun, RefusesAnotherAdapter) {
  JobConfig before = Job();
  before.adapter = AdapterConfig{.lora = LoraConfig{.rank = 4, .alpha = 8}};
  for (const auto& change : std::vector<std::function<void(LoraConfig&)>>{
           [](LoraConfig& lora) { lora.alpha = 16; }, [](LoraConfig& lora) { lora.rank = 8; },
           [](LoraConfig& lora) { lora.rslora = true; },
           [](LoraConfig& lora) { lora.dora = true; }}) {
    JobConfig now = before;
    change(*now.adapter->lora);
    EXPECT_THAT(std::string(CheckChanges(ChangesOfRun(before, now), {}).message()),
                HasSubstr("trainyard export --merge writes a model"));
  }
  JobConfig now = before;
  now.adapter->lora->dropout = 0.1;
  EXPECT_TRUE(CheckChanges(ChangesOfRun(before, now), {}).ok());
}

TEST(ContinuedRun, SaysThatTheRateOfAScheduleWithALengthChanges) {
  JobConfig before = Job();
  before.optimizer.schedule.shape = ScheduleShape::kCosine;
  JobConfig now = before;
  now.steps = 20;
  const std::vector<RunChange> changes = ChangesOfRun(before, now);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_THAT(Described(changes[0]),
              ::testing::AllOf(HasSubstr("steps: 10 before, 20 now"), HasSubstr("learning rate")));
}

TEST(ContinuedRun, RefusesToRepeatOrSkipSamplesUnlessThatIsAllowed) {
  const std::vector<std::function<void(JobConfig&)>> changes = {
      [](JobConfig& job) { job.seed = 4; },
      [](JobConfig& job) { job.batch.sequence = 32; },
      [](JobConfig& job) { job.data.As<BlendData>().validation_fraction = 0.1; },
      [](JobConfig& job) { job.data.As<BlendData>().datasets[0].weight = 5; },
      [](JobConfig& job) { job.data.As<BlendData>().datasets.resize(1); },
      [](JobConfig& job) { job.data = SyntheticData{}; },
  };
  const std::vector<std::string> fields = {"seed",
                                           "batch.sequence",
                                           "data.blend.validation_fraction",
                                           "data.blend.datasets[0].weight",
                                           "data.blend.datasets",
                                           "data"};
  for (size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE(fields[i]);
    JobConfig now = Job();
    changes[i](now);
    const std::vector<RunChange> found = ChangesOfRun(Job(), now);
    EXPECT_THAT(
        std::string(CheckChanges(found, {}).message()),
        ::testing::AllOf(HasSubstr(fields[i] + ": wanted "), HasSubstr("--allow " + fields[i])));
    EXPECT_TRUE(CheckChanges(found, {fields[i]}).ok());
    EXPECT_FALSE(CheckChanges(found, {"batch"}).ok() && fields[i] == "seed");
  }
  JobConfig other = Job();
  other.data = SyntheticData{};
  EXPECT_TRUE(CheckChanges(ChangesOfRun(Job(), other), {"data"}).ok());
}

TEST(ContinuedRun, RefusesWhatDoesNotFitTheRunsState) {
  const std::vector<std::function<void(JobConfig&)>> changes = {
      [](JobConfig& job) { job.model.overrides->fields["hidden"] = int64_t{64}; },
      [](JobConfig& job) { job.trainable = {"*norm*"}; },
      [](JobConfig& job) { job.precision = PrecisionName::kF64; },
      [](JobConfig& job) { job.model = {.preset = "llama3-8b"}; },
  };
  for (const auto& change : changes) {
    JobConfig now = Job();
    change(now);
    EXPECT_THAT(std::string(CheckChanges(ChangesOfRun(Job(), now), {}).message()),
                HasSubstr("init_from"));
  }
}

TEST(ContinuedRun, IsLongerThanTheRun) {
  EXPECT_TRUE(CheckLonger(9, Job()).ok());
  EXPECT_THAT(std::string(CheckLonger(10, Job()).message()),
              HasSubstr("steps: wanted more than 10, the steps of the run that the job continues, "
                        "found 10; nearest 11"));
}

TEST(ContinuedRun, WantsADirectoryAJobAndFieldsThatCanBeAllowed) {
  JobConfig job = Job();
  job.checkpoint.reset();
  job.continues = ContinuesConfig{.job = "", .epoch = 0, .allow = {"seed", "data.blend", "sead"}};
  Violations found;
  Validate(job, found);
  EXPECT_THAT(std::string(found.ToStatus().message()),
              ::testing::AllOf(HasSubstr("continues: wanted a checkpoint.directory"),
                               HasSubstr("continues.job: wanted the job that owns"),
                               HasSubstr("continues.allow: wanted batch.sequence, data, seed or a "
                                         "field below one of them, found 'sead'; nearest seed")));
}

}  // namespace
}  // namespace trainyard
