// Proves that a job whose spec imports a Hugging Face directory trains to the bit as one that
// begins with the checkpoint which `trainyard import` makes of that directory: on one rank and on
// four, divided in each way, with frozen parameters, from each form in which tensors may lie. An
// attempt that dies early is repeated to the bit. Later ones do not need the directory. A directory
// that is damaged, or of another model, is refused by file and tensor or field, before the job
// claims anything.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "models/hf/model.h"
#include "tests/models/hf/files.h"
#include "tests/train/hf/directory.h"
#include "tests/train/step/run_job.h"
#include "train/checkpoint/lineage.h"
#include "train/hf/carried_files.h"
#include "train/hf/export.h"
#include "train/hf/import.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;

std::string Golden(const std::string& name) { return SourceFile("tests/golden/" + name); }

// A job that trains the directory's model for a few steps.
JobConfig JobOf(const std::string& directory, const std::string& checkpoint) {
  const auto config = ReadHfConfig(directory);
  CHECK(config.ok()) << config.status();
  JobConfig job = TinyJob(checkpoint);
  job.model.architecture = GivenModel{.family = config->family()};
  for (const Field& field : FieldsOf(*config)) {
    job.model.architecture->fields[field.rule.name] = field.value;
  }
  job.model.import_path = directory;
  job.batch = {.global = 4, .micro = 1, .sequence = 8};
  return job;
}

struct Layout {
  std::string name;
  int ranks;
  ParallelismConfig parallelism;
};

std::vector<Layout> Layouts() {
  return {{"one", 1, {}},
          {"tensor", 4, {.tensor = 2, .expert_split = ExpertSplit::kExpert, .zero = Zero::kFull}},
          {"pipeline", 4, {.pipeline = 2, .zero = Zero::kFull}}};
}

class ImportJob : public ::testing::Test {
 protected:
  // Runs the job, and returns the digest of what it trained.
  std::string Train(const JobConfig& job, const RunOptions& options = {}) const {
    for (const RankRun& run : RunJob(job, options)) {
      EXPECT_TRUE(run.status.ok()) << run.status;
      if (!run.status.ok()) return "";
    }
    return NewestDigest(job.checkpoint->directory);
  }

  // The digest after a start from the directory, and after one from its checkpoint.
  void ExpectSame(JobConfig job, const RunOptions& options) const {
    const std::string imported = scratch_ + "/imported";
    if (!std::filesystem::exists(imported)) {
      ASSERT_TRUE(ImportHf({job.model.import_path, imported}).ok());
    }
    job.checkpoint->directory = scratch_ + "/from-directory";
    const std::string found = Train(job, options);
    job.model.import_path = "";
    job.init_from = imported;
    job.checkpoint->directory = scratch_ + "/from-checkpoint";
    EXPECT_EQ(found, Train(job, options));
    std::filesystem::remove_all(scratch_ + "/from-directory");
    std::filesystem::remove_all(scratch_ + "/from-checkpoint");
  }

  // The error of the lowest rank. The job has claimed nothing.
  absl::Status Refusal(const JobConfig& job, int ranks = 2) const {
    const auto runs = RunJob(job, {.ranks = ranks});
    for (const RankRun& run : runs) EXPECT_EQ(run.status.code(), runs[0].status.code());
    EXPECT_FALSE(std::filesystem::exists(job.checkpoint->directory));
    EXPECT_THAT(std::string(runs[0].status.message()), ::testing::StartsWith("model.import: "));
    return runs[0].status;
  }

  const std::string scratch_ = EmptyDirectory("scratch");
  const std::string directory_ = scratch_ + "/model", checkpoint_ = scratch_ + "/job";
};

// Experts in stacks, rows that alternate, transposed matrices, tied ends, several key/value heads.
TEST_F(ImportJob, TrainsToTheBitAsFromTheCheckpoint) {
  for (const char* name : {"llama", "gemma3_tied", "gpt_oss", "qwen3_moe"}) {
    std::filesystem::remove_all(scratch_ + "/imported");
    for (const Layout& layout : Layouts()) {
      SCOPED_TRACE(std::string(name) + " " + layout.name);
      JobConfig job = JobOf(Golden(std::string("hf/") + name), checkpoint_);
      job.parallelism = layout.parallelism;
      // An odd vocabulary, which no other number of ranks divides.
      if (layout.parallelism.tensor > 1) job.model.architecture->fields["vocab_multiple"] = 2;
      ExpectSame(job, {.ranks = layout.ranks});
    }
  }
}

TEST_F(ImportJob, FrozenAndQuantizedParametersAreTheSame) {
  JobConfig job = JobOf(Golden("quantized/fp8"), checkpoint_);
  job.precision = PrecisionName::kBF16;
  job.frozen = {"model.layers.0.*"};
  job.parallelism.zero = Zero::kFull;
  ExpectSame(job, {.ranks = 2});
}

// A kill before the first checkpoint, and one after it, when the directory is no longer there.
TEST_F(ImportJob, GoesOnToTheBitAfterAKill) {
  std::filesystem::copy(Golden("hf/llama"), directory_);
  WriteBytes(directory_ + "/tokenizer.json", "{\"words\": 13}");
  JobConfig job = JobOf(directory_, checkpoint_);
  job.steps = 4;
  job.checkpoint->every_steps = 1;
  job.checkpoint->keep = 1;
  const std::string undisturbed = Train(job);

  job.checkpoint->directory = scratch_ + "/killed";
  JobConfig first = job;
  first.checkpoint->every_steps = 0;
  RunOptions dies{.before_attempt = [](int, int64_t step, int, StepState&) {
    if (step == 2) throw DeviceError(DeviceError::Kind::kDevice, "killed");
  }};
  EXPECT_EQ(RunJob(first, dies)[0].thrown.substr(0, 6), "killed");
  RunOptions stops{.epoch = 2, .resume = true, .stop = [](int, int64_t step) { return step > 2; }};
  ASSERT_TRUE(RunJob(job, stops)[0].status.ok());
  ASSERT_LT(Newest(job.checkpoint->directory).state().step, 4);

  std::filesystem::remove_all(directory_);
  EXPECT_EQ(Train(job, {.epoch = 3, .resume = true}), undisturbed);
  EXPECT_EQ(ListCheckpoints(job.checkpoint->directory)->size(), 1u);  // Others are removed whole.
  const auto exported = ExportHf(Newest(job.checkpoint->directory), {.to = scratch_ + "/exported"});
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_THAT(exported->carried, ::testing::ElementsAre("tokenizer.json"));
  EXPECT_EQ(exported->dtype, HfDType::kF64);
}

TEST_F(ImportJob, ADirectoryThatIsGoneByTheNextAttemptIsTheHostsFailure) {
  std::filesystem::copy(Golden("hf/llama"), directory_);
  JobConfig job = JobOf(directory_, checkpoint_);
  const RunOptions dies{.before_attempt = [](int, int64_t, int, StepState&) {
    throw DeviceError(DeviceError::Kind::kDevice, "killed");
  }};
  EXPECT_NE(RunJob(job, dies)[0].thrown, "");
  std::filesystem::remove_all(directory_);
  const auto runs = RunJob(job, {.epoch = 2, .resume = true});
  EXPECT_TRUE(IsStorageFault(runs[0].status)) << runs[0].status;
}

// Bug it must catch: the next attempt begins with the weights of another model of the same sizes.
TEST_F(ImportJob, RefusesOtherWeightsThanTheFirstAttemptHad) {
  std::filesystem::copy(Golden("hf/llama"), directory_);
  JobConfig job = JobOf(directory_, checkpoint_);
  const RunOptions dies{.before_attempt = [](int, int64_t, int, StepState&) {
    throw DeviceError(DeviceError::Kind::kDevice, "killed");
  }};
  EXPECT_NE(RunJob(job, dies)[0].thrown, "");
  const auto replaced = [&](const std::string& name, size_t at) {
    const std::string path = directory_ + "/" + name;
    const std::string content = ReadFile(path).value();
    std::string other = content;
    other[at] ^= 1;
    WriteBytes(path, other);
    static int64_t epoch = 2;
    const absl::Status status =
        RunJob(job, {.ranks = 2, .epoch = epoch++, .resume = true})[0].status;
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("model.import: " + path + " is not the file that attempt 1 read: "));
    WriteBytes(path, content);
  };
  replaced(kHfWeightsName, std::filesystem::file_size(directory_ + "/" + kHfWeightsName) - 8);
  const std::string config = ReadFile(directory_ + "/" + kHfConfigName).value();
  replaced(kHfConfigName, config.find("5.24.0"));
  EXPECT_NE(Train(job, {.epoch = 9, .resume = true}), "");
}

TEST_F(ImportJob, RefusesWhatIsMissingOrDamagedByFileAndTensor) {
  std::filesystem::copy(Golden("hf/llama"), directory_);
  const JobConfig job = JobOf(directory_, checkpoint_);
  const std::string weights = directory_ + "/" + kHfWeightsName;
  std::filesystem::resize_file(weights, std::filesystem::file_size(weights) - 8);
  absl::Status status = Refusal(job);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(weights));

  DirectoryContent content = DirectoryContent::Of(Golden("hf/llama"));
  content.tensors.erase("model.norm.weight");
  content.Write(directory_);
  status = Refusal(job);
  EXPECT_THAT(std::string(status.message()), HasSubstr("tensor model.norm.weight: missing"));

  ASSERT_TRUE(ImportHf({Golden("hf/llama"), scratch_ + "/imported"}).ok());
  const auto sharded = ExportHf(*Checkpoint::Open(scratch_ + "/imported"),
                                {.to = scratch_ + "/sharded", .shard_bytes = 5000});
  ASSERT_TRUE(sharded.ok()) << sharded.status();
  std::filesystem::remove(scratch_ + "/sharded/" + sharded->files[1]);
  status = Refusal(JobOf(scratch_ + "/sharded", checkpoint_));
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(HasSubstr("tensor \""), HasSubstr(sharded->files[1])));

  std::filesystem::remove_all(directory_);
  EXPECT_TRUE(absl::IsNotFound(Refusal(job)));
}

TEST_F(ImportJob, IgnoresWhatTheJobNames) {
  DirectoryContent content = DirectoryContent::Of(Golden("hf/llama"));
  JobConfig job = JobOf(Golden("hf/llama"), checkpoint_);
  job.model.import_path = directory_;
  content.config["fancy"] = 3;
  content.Write(directory_);
  EXPECT_THAT(std::string(Refusal(job).message()), HasSubstr("fancy: wanted no such key"));
  job.model.ignore_keys = {"fancy"};
  ASSERT_NE(Train(job), "");
  const auto exported = ExportHf(Newest(checkpoint_), {.to = scratch_ + "/exported"});
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(DirectoryContent::Of(scratch_ + "/exported").config["fancy"], 3);
}

TEST_F(ImportJob, RefusesNumbersThatAreNotFinite) {
  DirectoryContent content = DirectoryContent::Of(Golden("hf/llama"));
  const double number = std::nan("");
  std::memcpy(&content.tensors.at("lm_head.weight").bytes[16], &number, sizeof(number));
  content.Write(directory_);
  EXPECT_THAT(std::string(Refusal(JobOf(directory_, checkpoint_), /*ranks=*/1).message()),
              HasSubstr("tensor lm_head.weight: wanted finite numbers, found NaN or infinity at "
                        "[0, 2]"));
}

// A job that an earlier release stored keeps the balancing loss that is written out in it.
TEST_F(ImportJob, ABalancingLossMayDifferFromTheDirectorys) {
  JobConfig job = JobOf(Golden("hf/mixtral"), checkpoint_);
  job.model.architecture->fields["moe.aux_loss"] = 0.9;
  const std::string digest = Train(job);
  job.model.architecture->fields["moe.aux_loss"] = 0.0;
  job.checkpoint->directory = scratch_ + "/without";
  EXPECT_NE(Train(job), digest);
}

// Only fields that an init_from may have otherwise, too.
TEST_F(ImportJob, RefusesAnotherArchitectureByItsFirstField) {
  JobConfig job = JobOf(Golden("hf/llama"), checkpoint_);
  job.model.architecture->fields["norm_eps"] = 1e-3;
  absl::Status status = Refusal(job);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("config.json: another model than model.architecture: norm_eps is "));
  job = JobOf(Golden("hf/llama"), checkpoint_);
  job.model.architecture->family = "qwen3";
  EXPECT_THAT(std::string(Refusal(job).message()), HasSubstr("family is llama, wanted qwen3"));
  job = JobOf(Golden("hf/llama"), checkpoint_);
  job.model.architecture->fields["max_seq"] = int64_t{4096};
  EXPECT_NE(Train(job), "");
}

// Numbers of f64 would be rounded without a word.
TEST_F(ImportJob, RefusesWiderWeightsThanTheJobs) {
  JobConfig job = JobOf(Golden("hf/llama"), checkpoint_);
  job.precision = PrecisionName::kF32;
  EXPECT_THAT(std::string(Refusal(job).message()),
              HasSubstr("wanted f32 [13, 12], the directory has f64"));
}

// Bug it must catch: a job reads a file that its roots do not hold, through a link of the
// directory.
TEST_F(ImportJob, FollowsNoLinkOutOfTheRoots) {
  WriteBytes(scratch_ + "/secret", "secret");
  std::filesystem::create_directories(scratch_ + "/allowed");
  const std::string inside = scratch_ + "/allowed/model";
  for (const char* name : {"tokenizer.json", kHfConfigName}) {
    std::filesystem::remove_all(inside);
    std::filesystem::copy(Golden("hf/llama"), inside);
    const Roots roots({scratch_ + "/allowed"});
    ASSERT_TRUE(HfModel::Open(inside, roots).ok());
    std::filesystem::remove(inside + "/" + name);
    std::filesystem::create_symlink(scratch_ + "/secret", inside + "/" + name);
    const auto model = HfModel::Open(inside, roots);
    const absl::Status status = model.ok() ? FilesToKeep(*model, roots).status() : model.status();
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << name << ": " << status;
  }
}

}  // namespace
}  // namespace trainyard::testing
