// Proves the families against `transformers`, in f64. Each directory of tests/golden/hf is a tiny
// model that make_hf.py wrote, with what that code computes from it. The model is imported; its
// logits are those (1e-8), and its gradients (1e-7). A job that begins with the model (init_from),
// on one rank or divided over four, has the same losses, norms and parameters in twelve steps with
// clipping (1e-7). Exported and imported again, the model is the same to the bit.
#include <algorithm>
#include <filesystem>
#include <numeric>
#include <set>

#include "gtest/gtest.h"
#include "models/hf/safetensors.h"
#include "models/model.h"
#include "tests/models/hf/files.h"
#include "tests/models/tiny.h"
#include "tests/train/step/run_job.h"
#include "tests/train/step/tensors.h"
#include "train/data/indexed.h"
#include "train/hf/export.h"
#include "train/hf/import.h"
#include "train/step/snapshot.h"
#include "train/tools/indexed_writer.h"

namespace trainyard::testing {
namespace {

// As in make_hf.py.
constexpr int64_t kSamples = 4, kSequence = 9, kSteps = 12;
constexpr double kClipNorm = 0.05;

std::vector<std::string> Cases() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(SourceFile("tests/golden/hf"))) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The tensor `name` of a golden file.
template <typename T>
std::vector<T> Read(const std::string& path, const std::string& name) {
  const auto file = SafetensorsFile::Open(path);
  CHECK(file.ok()) << file.status();
  const SafetensorsTensor& tensor = file->tensors().at(name);
  CHECK(SizeOf(tensor.dtype) == sizeof(T)) << name;
  std::vector<T> values(tensor.bytes / sizeof(T));
  CHECK(file->Read(tensor, 0, values.data(), tensor.bytes).ok());
  return values;
}

class GoldenModel : public ::testing::TestWithParam<std::string> {
 protected:
  // The imported directory.
  Checkpoint Import(const std::string& directory, const std::string& name) const {
    const std::string to = absl::StrCat(scratch_, "/", name);
    const auto imported = ImportHf({directory, to});
    CHECK(imported.ok()) << imported.status();
    auto checkpoint = Checkpoint::Open(to);
    CHECK(checkpoint.ok()) << checkpoint.status();
    return *std::move(checkpoint);
  }

  // Whether a loss balances the load of experts over all samples at once.
  bool balances() const {
    const auto experts = FactsOf(checkpoint_.state().model).experts;
    return experts && experts->aux_loss > 0;
  }
  JobConfig Job(const std::string& name) const;
  // The largest difference of a test is its property, which scripts/families_table.py shows.
  void ExpectWithin(double limit, const Tensors& found, const Tensors& wanted);
  void ExpectGolden(const std::vector<RankRun>& runs, const JobConfig& job);

  const std::string scratch_ = EmptyDirectory(GetParam());
  const std::string directory_ = SourceFile("tests/golden/hf/" + GetParam());
  const std::string golden_ = directory_ + "/golden.safetensors";
  const std::vector<int64_t> tokens_ = Read<int64_t>(golden_, "tokens");
  const std::vector<int32_t> inputs_{tokens_.begin(), tokens_.end() - 1};
  const std::vector<int32_t> targets_{tokens_.begin() + 1, tokens_.end()};
  const Checkpoint checkpoint_ = Import(directory_, "imported");

 private:
  double largest_ = 0;
};

void GoldenModel::ExpectWithin(double limit, const Tensors& found, const Tensors& wanted) {
  const double difference = LargestDifference(found, wanted);
  EXPECT_LE(difference, limit);
  largest_ = std::max(largest_, difference);
  RecordProperty("difference", absl::StrCat(largest_));
}

RecordOptions Options() {
  return {.precision = Precision::F64(), .micro_batch = kSamples, .sequence = kSequence};
}

// The program with the checkpoint's parameters.
std::unique_ptr<Executable> BindWith(Program program, const Checkpoint& checkpoint) {
  auto executable = Bind(std::move(program));
  const absl::Status loaded = LoadSnapshot(checkpoint, LoadWhat::kParameters, *executable);
  CHECK(loaded.ok()) << loaded;
  executable->Run(Action::kPrepare);
  return executable;
}

TEST_P(GoldenModel, LogitsAreThose) {
  const auto model = CreateModel(checkpoint_.state().model);
  const auto executable = BindWith(RecordInference(*model, Options()), checkpoint_);
  executable->WriteInput("tokens", 0, inputs_);
  executable->Run(Action::kForward);
  const std::vector<double> wanted = Read<double>(golden_, "logits");
  std::vector<double> logits(wanted.size());
  executable->ReadOutput("logits", 0, logits.data(), logits.size() * sizeof(double));
  ExpectWithin(1e-8, {{"logits", logits}}, {{"logits", wanted}});
}

TEST_P(GoldenModel, GradientsAreThose) {
  const auto model = CreateModel(checkpoint_.state().model);
  const auto executable =
      BindWith(RecordTraining(*model, {.record = Options(), .optimizer = {}}), checkpoint_);
  executable->WriteInput("tokens", 0, inputs_);
  executable->WriteInput("targets", 0, targets_);
  executable->WriteStepState({.step = 1, .loss_scale = 1.0 / double(targets_.size()), .seed = 1});
  const MicroBatch micro{.first = true, .last = true};
  executable->Run(Action::kForward, micro);
  executable->Run(Action::kBackward, micro);
  Tensors gradients;
  Tensors wanted = ReadTensors(Import(directory_ + "/gradients", "gradients"));
  for (const ParameterBox& box : executable->program().Parameters()) {
    const std::string name = box.name + "/parameter";
    if (box.state) {  // Has no gradient.
      wanted.erase(name);
    } else {
      gradients[name] = ReadFlat(*executable, FlatBuffer::kGradient, box.flat);
    }
  }
  ExpectWithin(1e-7, gradients, wanted);
}

// The architecture with every field given.
GivenModel Given(const ModelConfig& config) {
  GivenModel given{.family = config.family()};
  for (const Field& field : FieldsOf(config)) given.fields[field.rule.name] = field.value;
  return given;
}

// Twelve steps on the golden samples.
JobConfig GoldenModel::Job(const std::string& name) const {
  const std::string prefix = absl::StrCat(scratch_, "/", name, "-tokens");
  const auto writer = IndexedWriter::Create(prefix, IndexDType::kInt32);
  CHECK(writer.ok()) << writer.status();
  const std::vector<int32_t> tokens(tokens_.begin(), tokens_.end());
  CHECK((*writer)->AddDocument(tokens).ok());
  CHECK((*writer)->Finish().ok());
  JobConfig job = TinyJob(absl::StrCat(scratch_, "/", name));
  job.model.architecture = Given(checkpoint_.state().model);
  job.batch = {.global = kSamples, .micro = balances() ? kSamples : 1, .sequence = kSequence};
  job.data = IndexedData{.prefix = prefix};
  job.optimizer.clip_norm = kClipNorm;
  job.steps = kSteps;
  job.init_from = checkpoint_.path();
  return job;
}

void GoldenModel::ExpectGolden(const std::vector<RankRun>& runs, const JobConfig& job) {
  for (const RankRun& run : runs) ASSERT_TRUE(run.status.ok()) << run.status;
  std::vector<double> losses, norms;
  for (const StepRecord& record : runs[0].records) {
    losses.push_back(record.loss);
    norms.push_back(record.grad_norm);
  }
  ExpectWithin(1e-7, {{"losses", losses}, {"norms", norms}},
               {{"losses", Read<double>(golden_, "losses")},
                {"norms", Read<double>(golden_, "grad_norms")}});
  Tensors found = ReadTensors(Newest(job.checkpoint->directory));
  std::erase_if(found, [](const auto& tensor) { return !tensor.first.ends_with("/parameter"); });
  ExpectWithin(1e-7, found, ReadTensors(Import(directory_ + "/after", "after")));
}

TEST_P(GoldenModel, TwelveStepsOnFourRanksAreThose) {
  JobConfig job = Job("four");
  job.parallelism.pipeline = 2;
  job.parallelism.zero = Zero::kFull;
  job.batch.micro = balances() ? kSamples / 2 : 1;
  ExpectGolden(RunJob(job, {.ranks = 4}), job);
}

TEST_P(GoldenModel, TwelveStepsAreThose) {
  const JobConfig job = Job("run");
  ExpectGolden(RunJob(job), job);

  // What the job has trained is exported as the imported directory was.
  const auto exported = ExportHf(Newest(job.checkpoint->directory), {.to = scratch_ + "/trained"});
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(exported->origin, checkpoint_.path() + "/hugging_face");
  EXPECT_EQ(exported->dtype, HfDType::kF64);
}

TEST_P(GoldenModel, ExportedAndImportedAgainItIsTheSameToTheBit) {
  const std::string to = scratch_ + "/exported";
  const auto exported = ExportHf(checkpoint_, {.to = to, .shard_bytes = 5000});
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_GT(exported->files.size(), 2u);
  const Checkpoint again = Import(to, "again");
  EXPECT_EQ(again.state().model, checkpoint_.state().model);
  EXPECT_EQ(*again.Digest(), *checkpoint_.Digest());
}

// The 13 tokens of these models do not divide over ranks.
class PaddedGoldenModel : public GoldenModel {};

TEST_P(PaddedGoldenModel, TwelveStepsAreThoseAndNothingOfThePaddingIsSeen) {
  for (const int tensor : {1, 2}) {
    SCOPED_TRACE(tensor);
    JobConfig job = Job(absl::StrCat("padded-", tensor));
    job.batch.micro = kSamples;
    job.model.architecture->fields["vocab_multiple"] = 8;
    job.parallelism.tensor = tensor;
    ExpectGolden(RunJob(job, {.ranks = tensor}), job);
    std::filesystem::remove_all(scratch_ + "/after");
    const Checkpoint trained = Newest(job.checkpoint->directory);
    const StoredTensor* const embedding =
        trained.Find("model.embed_tokens.weight", TensorKind::kParameter);
    ASSERT_NE(embedding, nullptr);
    EXPECT_EQ(embedding->shape[0], 13);
    const std::string to = absl::StrCat(scratch_, "/trained-", tensor);
    ASSERT_TRUE(ExportHf(trained, {.to = to}).ok());
    EXPECT_EQ(Import(to, absl::StrCat("again-", tensor)).state().model, checkpoint_.state().model);
  }
}

INSTANTIATE_TEST_SUITE_P(Hf, PaddedGoldenModel, ::testing::Values("llama", "llama_tied"),
                         [](const auto& info) { return info.param; });

INSTANTIATE_TEST_SUITE_P(Hf, GoldenModel, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace trainyard::testing
