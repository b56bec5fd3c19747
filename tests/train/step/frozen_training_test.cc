// Proves what a job with frozen parameters promises: it resumes to the bit under any layout, what
// is frozen has its bytes at the end, lies on the disk once, is verified when it is loaded and
// stays while a checkpoint names it; and init_from fills both kinds by name.

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "kernels/device/dtype.h"
#include "tests/train/step/run_job.h"
#include "train/checkpoint/paths.h"
#include "train/checkpoint/save.h"
#include "train/config/resolve_model.h"
#include "train/config/validate.h"
#include "train/step/rank_engine.h"
#include "train/trainer/state_check.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Five of six layers and the embedding are frozen: four fifths of the parameters.
JobConfig FrozenJob(const std::string& directory, PrecisionName precision = PrecisionName::kBF16) {
  JobConfig job = TinyJob(directory);
  job.model.architecture->fields["layers"] = 6;
  job.precision = precision;
  job.batch.micro = 2;
  job.steps = 4;
  job.frozen = {"model.embed_tokens.weight"};
  for (int layer = 0; layer < 5; ++layer) {
    job.frozen.push_back(absl::StrCat("model.layers.", layer, ".*"));
  }
  return job;
}

// Of a tensor, wherever the checkpoint has it.
std::vector<double> Values(const Checkpoint& checkpoint, const std::string& name) {
  const StoredTensor* stored = checkpoint.Find(name, TensorKind::kParameter);
  CHECK(stored != nullptr) << name;
  std::vector<double> values(size_t(stored->shape.elements()));
  const TargetBox box{.name = name,
                      .dtype = DType::kF64,
                      .global_shape = stored->shape,
                      .box = WholeBox(stored->shape),
                      .data = values.data(),
                      .conversion = Conversion::kWiden};
  const absl::Status status = checkpoint.Load(std::vector<TargetBox>{box});
  CHECK(status.ok()) << status;
  return values;
}

std::map<std::string, std::vector<double>> FrozenValues(const Checkpoint& checkpoint) {
  std::map<std::string, std::vector<double>> values;
  CHECK(checkpoint.base() != nullptr);
  for (const StoredTensor& tensor : checkpoint.base()->tensors) {
    values[tensor.name] = Values(checkpoint, tensor.name);
  }
  return values;
}

std::vector<double> Rounded(std::vector<double> values) {
  for (double& value : values) value = double(float(bf16(float(value))));
  return values;
}

std::string Undisturbed(JobConfig job, int ranks) {
  job.checkpoint->directory = FreshDirectory("frozen_undisturbed");
  const auto runs = RunJob(job, {.ranks = ranks});
  EXPECT_TRUE(runs[0].status.ok()) << runs[0].status;
  return NewestDigest(job.checkpoint->directory);
}

struct Gang {
  const char* name;
  int ranks;
  ParallelismConfig parallelism;
  friend void PrintTo(const Gang& gang, std::ostream* out) { *out << gang.name; }
};

class FrozenResume : public ::testing::TestWithParam<Gang> {};

TEST_P(FrozenResume, FromEveryStepEndsWithTheSameBits) {
  JobConfig job = FrozenJob("");
  job.parallelism = GetParam().parallelism;
  const std::string want = Undisturbed(job, GetParam().ranks);
  for (int64_t k = 1; k < job.steps; ++k) {
    SCOPED_TRACE(k);
    job.checkpoint->directory = FreshDirectory("frozen_interrupted");
    RunJob(job, {.ranks = GetParam().ranks, .stop = [&](int, int64_t step) { return step == k; }});
    const Checkpoint before = Newest(job.checkpoint->directory);
    const auto runs = RunJob(job, {.ranks = GetParam().ranks, .epoch = 2, .resume = true});
    ASSERT_TRUE(runs[0].status.ok()) << runs[0].status;
    EXPECT_EQ(runs[0].records.front().step, k + 1);
    const Checkpoint after = Newest(job.checkpoint->directory);
    EXPECT_EQ(NewestDigest(job.checkpoint->directory), want);
    // Written once, by the first attempt.
    EXPECT_EQ(after.state().epoch, 2);
    EXPECT_EQ(after.state().base, before.state().base);
    EXPECT_EQ(after.state().base->epoch, 1);
    EXPECT_FALSE(Exists(BasePath(job.checkpoint->directory, 2)));
  }
}
INSTANTIATE_TEST_SUITE_P(Gangs, FrozenResume,
                         ::testing::Values(Gang{"alone", 1, {}}, Gang{"data", 2, {}},
                                           Gang{"full", 2, {.zero = Zero::kFull}},
                                           Gang{"tensor", 2, {.tensor = 2}},
                                           Gang{"pipeline", 2, {.pipeline = 2}}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(FrozenTraining, TrainsWhatIsLeftAndKeepsTheRest) {
  const std::string directory = FreshDirectory("frozen_bytes");
  JobConfig job = FrozenJob(directory);
  job.checkpoint->every_steps = 1;
  job.checkpoint->keep = 10;
  const auto runs = RunJob(job);
  ASSERT_TRUE(runs[0].status.ok()) << runs[0].status;
  EXPECT_LT(runs[0].records.back().loss, runs[0].records.front().loss);
  // The same numbers that training begins with where nothing is frozen.
  JobConfig all = FrozenJob(FreshDirectory("frozen_nothing"));
  all.frozen.clear();
  all.steps = 1;
  all.optimizer.options["learning_rate"] = 1e-30;
  all.optimizer.options["weight_decay"] = 0;
  ASSERT_TRUE(RunJob(all)[0].status.ok());
  const Checkpoint initial = Newest(all.checkpoint->directory), last = Newest(directory);
  EXPECT_EQ(initial.base(), nullptr);
  EXPECT_EQ(initial.state().base, std::nullopt);
  int64_t frozen = 0, total = 0;
  for (const StoredTensor& tensor : initial.manifest().tensors) {
    if (tensor.kind != TensorKind::kParameter) continue;
    SCOPED_TRACE(tensor.name);
    total += tensor.shape.elements();
    const bool is_frozen = last.base()->Find(tensor.name, TensorKind::kParameter) != nullptr;
    const std::vector<double> begin = Values(initial, tensor.name), end = Values(last, tensor.name);
    if (is_frozen) {
      frozen += tensor.shape.elements();
      EXPECT_EQ(end, Rounded(begin));
      EXPECT_EQ(last.Find(tensor.name, TensorKind::kParameter)->dtype, DType::kBF16);
      EXPECT_EQ(last.Find(tensor.name, TensorKind::kFirstMoment), nullptr);
    } else {
      EXPECT_NE(end, begin);
    }
  }
  EXPECT_NEAR(double(frozen) / double(total), 0.8, 0.03);
  // Four checkpoints, one base.
  const auto paths = CompleteCheckpoints(directory).value();
  ASSERT_EQ(paths.size(), 4u);
  for (const std::string& path : paths) {
    EXPECT_EQ(*BaseOf(path).value(), BasePath(directory, 1));
  }
}

// As a base of an earlier release, which rounded parameters that are unrounded now: f32 holds each
// number of bf16 exactly.
TEST(FrozenTraining, ResumesFromABaseThatWasRounded) {
  JobConfig job = FrozenJob(FreshDirectory("frozen_rounded"));
  RunJob(job, {.stop = [](int, int64_t step) { return step == 2; }});
  const auto frozen = FrozenValues(Newest(job.checkpoint->directory));
  job.precision = PrecisionName::kF32;
  const auto runs = RunJob(job, {.epoch = 2, .resume = true});
  ASSERT_TRUE(runs[0].status.ok()) << runs[0].status;
  EXPECT_EQ(runs[0].records.front().step, 3);
  EXPECT_EQ(FrozenValues(Newest(job.checkpoint->directory)), frozen);
}

TEST(FrozenTraining, ResumesUnderAnotherLayout) {
  JobConfig job = FrozenJob(FreshDirectory("frozen_reshard"), PrecisionName::kF64);
  RunJob(job, {.ranks = 1, .stop = [](int, int64_t step) { return step == 2; }});
  const auto before = FrozenValues(Newest(job.checkpoint->directory));
  job.parallelism = {.tensor = 2, .pipeline = 2};
  const auto runs = RunJob(job, {.ranks = 4, .epoch = 2, .resume = true});
  ASSERT_TRUE(runs[0].status.ok()) << runs[0].status;
  const Checkpoint got = Newest(job.checkpoint->directory);
  EXPECT_EQ(FrozenValues(got), before);
  job.parallelism = {};
  Undisturbed(job, 1);
  const Checkpoint want = Newest(::testing::TempDir() + "/frozen_undisturbed");
  for (const StoredTensor& tensor : want.manifest().tensors) {
    if (tensor.kind != TensorKind::kParameter) continue;
    const auto a = Values(got, tensor.name), b = Values(want, tensor.name);
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-10) << tensor.name;
  }
}

// A stage whose blocks are all frozen, and which nothing comes back to.
TEST(FrozenTraining, OfTheHeadAloneOnTwoStages) {
  JobConfig job = FrozenJob(FreshDirectory("frozen_head"), PrecisionName::kF64);
  job.frozen.clear();
  job.trainable = {"lm_head.weight"};
  job.parallelism = {.pipeline = 2};
  job.checkpoint->every_steps = 1;
  const auto runs = RunJob(job, {.ranks = 2});
  ASSERT_TRUE(runs[0].status.ok()) << runs[0].status;
  const Checkpoint last = Newest(job.checkpoint->directory);
  EXPECT_EQ(last.manifest().tensors.size(), 3u);
  EXPECT_TRUE(last.Verify().ok());
}

void FlipByte(const std::string& path, int64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const char byte = char(file.get());
  file.seekp(at);
  file.put(char(byte ^ 1));
  CHECK(file.good()) << path;
}

TEST(FrozenBase, ThatIsDamagedIsNamedAndNotLoaded) {
  JobConfig job = FrozenJob(FreshDirectory("frozen_damaged"));
  RunJob(job, {.stop = [](int, int64_t step) { return step == 2; }});
  const std::string base = BasePath(job.checkpoint->directory, 1);
  const std::string data = base + "/rank-0.bin", named = "/frozen_damaged/epoch-1/base";
  const auto of_base = FindCheckpoints(base, Roots());
  EXPECT_TRUE(absl::IsInvalidArgument(of_base.status())) << of_base.status();
  EXPECT_THAT(std::string(of_base.status().message()), HasSubstr("frozen parameters"));
  FlipByte(data, 100);
  const Checkpoint checkpoint = Newest(job.checkpoint->directory);
  EXPECT_EQ(checkpoint.Verify().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(checkpoint.Verify().message()), HasSubstr(named + "/rank-0.bin"));
  const auto runs = RunJob(job, {.epoch = 2, .resume = true});
  EXPECT_THAT(std::string(runs[0].status.message()),
              AllOf(HasSubstr(named + "/rank-0.bin"), HasSubstr("damaged")));
  FlipByte(data, 100);
  EXPECT_TRUE(checkpoint.Verify().ok());

  // Another manifest, or none.
  std::filesystem::rename(base, base + ".away");
  const std::string path = checkpoint.path();
  EXPECT_EQ(Checkpoint::Open(path).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(Checkpoint::Open(path).status().message()),
              AllOf(HasSubstr(named), HasSubstr("are not there")));
  JobConfig other = FrozenJob(FreshDirectory("frozen_other"));
  other.seed = 6;
  RunJob(other);
  std::filesystem::copy(BasePath(other.checkpoint->directory, 1), base);
  EXPECT_THAT(std::string(Checkpoint::Open(path).status().message()), HasSubstr("are others"));
}

// Somebody removes it, or the disk loses a part of it, while the ranks have every value.
TEST(FrozenBase, ThatIsLostWhileTheJobRunsIsWrittenAgain) {
  for (const std::string lost : {"", "/manifest.json", "/rank-0.bin"}) {
    SCOPED_TRACE(lost);
    JobConfig job = FrozenJob(FreshDirectory("frozen_lost"));
    job.checkpoint->every_steps = 1;
    job.validation = ValidationConfig{.every_steps = 1, .batches = 1};  // Another loss each time.
    const std::string directory = job.checkpoint->directory, base = BasePath(directory, 1);
    const auto runs =
        RunJob(job, {.ranks = 2, .before_attempt = [&](int rank, int64_t step, int, StepState&) {
                       if (rank == 0 && step == 3) std::filesystem::remove_all(base + lost);
                     }});
    ASSERT_TRUE(runs[0].status.ok()) << runs[0].status;
    const auto paths = CompleteCheckpoints(directory);
    ASSERT_TRUE(paths.ok()) << paths.status();
    ASSERT_FALSE(paths->empty());
    for (const std::string& path : *paths) {
      const auto checkpoint = Checkpoint::Open(path);  // Earlier ones, too: it is the same base.
      ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
      EXPECT_TRUE(checkpoint->Verify().ok()) << path;
    }
  }
}

TEST(FrozenBase, StaysWhileACheckpointNamesItAndGoesAfterwards) {
  JobConfig job = FrozenJob(FreshDirectory("frozen_kept"));
  const std::string directory = job.checkpoint->directory;
  job.checkpoint->every_steps = 1;
  job.checkpoint->keep = 1;
  // An attempt that wrote its base and ended before it had a checkpoint.
  RunJob(job, {.stop = [](int, int64_t step) { return step == 1; }});
  std::filesystem::remove_all(CheckpointPath(directory, 1, 1));
  ASSERT_TRUE(Exists(BasePath(directory, 1)));
  // Its successor has its own.
  RunJob(job, {.epoch = 2, .resume = true, .stop = [](int, int64_t step) { return step == 2; }});
  EXPECT_FALSE(Exists(BasePath(directory, 1)));
  ASSERT_TRUE(Exists(BasePath(directory, 2)));
  const auto runs = RunJob(job, {.epoch = 3, .resume = true});
  ASSERT_TRUE(runs[0].status.ok()) << runs[0].status;
  EXPECT_THAT(CompleteCheckpoints(directory).value(), ElementsAre(CheckpointPath(directory, 3, 4)));
  EXPECT_TRUE(Exists(BasePath(directory, 2)));
  EXPECT_TRUE(Newest(directory).Verify().ok());
}

TEST(InitFrom, FillsTrainableAndFrozenParametersByName) {
  JobConfig source = FrozenJob(FreshDirectory("init_source"), PrecisionName::kF32);
  source.frozen.clear();
  ASSERT_TRUE(RunJob(source)[0].status.ok());
  const Checkpoint from = Newest(source.checkpoint->directory);
  JobConfig job = FrozenJob(FreshDirectory("init_frozen"));
  job.seed = 99;
  job.steps = 1;
  job.optimizer.options["learning_rate"] = 1e-30;
  job.optimizer.options["weight_decay"] = 0;
  job.model.architecture->fields["max_seq"] = 20;  // Changes no shape.
  job.init_from = from.path();
  const auto runs = RunJob(job, {.ranks = 2});
  ASSERT_TRUE(runs[0].status.ok()) << runs[0].status;
  const Checkpoint got = Newest(job.checkpoint->directory);
  for (const auto& [name, values] : FrozenValues(got)) {
    EXPECT_EQ(values, Rounded(Values(from, name))) << name;
  }
  EXPECT_EQ(Values(got, "lm_head.weight"), Values(from, "lm_head.weight"));

  // And back: a frozen base in bf16 fills master weights.
  JobConfig back = FrozenJob(FreshDirectory("init_back"));
  back.frozen.clear();
  back.steps = 1;
  back.optimizer.options["learning_rate"] = 1e-30;
  back.optimizer.options["weight_decay"] = 0;
  back.init_from = got.path();
  ASSERT_TRUE(RunJob(back)[0].status.ok());
  const Checkpoint whole = Newest(back.checkpoint->directory);
  EXPECT_EQ(Values(whole, "model.layers.0.mlp.down_proj.weight"),
            Rounded(Values(from, "model.layers.0.mlp.down_proj.weight")));
}

TEST(InitFrom, TakesASubsetOnlyWhenAsked) {
  JobConfig source = FrozenJob(FreshDirectory("subset_source"), PrecisionName::kF32);
  source.frozen.clear();
  source.model.architecture->fields["layers"] = 5;
  ASSERT_TRUE(RunJob(source)[0].status.ok());
  const Checkpoint from = Newest(source.checkpoint->directory);
  JobConfig job = FrozenJob(FreshDirectory("subset"));
  job.seed = 99;
  job.init_from = from.path();
  EXPECT_THAT(std::string(RunJob(job)[0].status.message()),
              AllOf(HasSubstr("init_from: "), HasSubstr("layers")));
  job.init_from_subset = true;
  const auto runs = RunJob(job);
  ASSERT_TRUE(runs[0].status.ok()) << runs[0].status;
  const Checkpoint got = Newest(job.checkpoint->directory);
  for (const auto& [name, values] : FrozenValues(got)) {
    EXPECT_EQ(values, Rounded(Values(from, name))) << name;
  }
  // Of equal names, other sizes.
  job.checkpoint->directory = FreshDirectory("subset_shapes");
  job.model.architecture->fields["ffn"] = 28;
  EXPECT_THAT(std::string(RunJob(job)[0].status.message()),
              AllOf(HasSubstr("init_from: "), HasSubstr(": ffn is "), HasSubstr("wanted 28")));
}

// Bug it must catch: ranks that hold a whole table alone, and padding of everything else, are
// compared with those that hold more. The norms of a block have 512 bytes.
TEST(FrozenStateCheck, ComparesNoRankThatHasPaddingAlone) {
  JobConfig job = TinyJob(FreshDirectory("frozen_padding"));
  job.model.architecture->fields["tied"] = true;
  job.precision = PrecisionName::kBF16;
  job.parallelism.zero = Zero::kFull;
  job.frozen = {"model.embed_tokens.weight", "*norm*"};
  for (const RankRun& run : RunJob(job, {.ranks = 4})) ASSERT_TRUE(run.status.ok()) << run.status;
}

// What the training loop asks of a state check, on each of two ranks.
TEST(FrozenStateCheck, FindsABitThatChangedBeforeACheckpointTrustsIt) {
  JobConfig job = FrozenJob("unused");
  job.devices = 2;
  const ModelConfig model = ResolveModel(job.model).value();
  for (const auto& [flip, updated] : {std::pair(false, true), {true, true}, {true, false}}) {
    std::array<absl::Status, 2> found;
    const auto errors = RunWorlds(2, [&](CollectiveWorld& world) {
      const auto engine = RankEngine::Create(job, model, {}, CpuBackend(), world).value();
      const auto everyone = world.Everyone().value();
      Executable& executable = engine->executable();
      executable.WriteStepState({.seed = 1});
      executable.Run(Action::kInit);
      StateCheck check(executable, *everyone);
      check.Begin();
      if (updated) CHECK(check.AfterUpdate({.finite = 1}).ok());
      const ParameterBox box = executable.program().FrozenParameters().back();
      if (flip && world.rank() == 1) {
        static_cast<std::byte*>(executable.frozen(box).data)[3] ^= std::byte(16);
      }
      // The moments are as they were written: as sums of zero master weights would say.
      found[size_t(world.rank())] = check.Compare(100, /*look_at_memory=*/true);
    });
    for (const std::string& error : errors) EXPECT_THAT(error, IsEmpty());
    for (const absl::Status& status : found) {
      EXPECT_EQ(flip, absl::StrContains(status.message(),
                                        "frozen parameters of rank 1 changed in memory"))
          << status;
    }
  }
}

}  // namespace
}  // namespace trainyard::testing
