// Proves that no attempt trains on other files than the attempts before it: of every source of
// data, whichever of its files is replaced, and on whichever host. What is the same content passes,
// wherever it lies now. tests/train/hf/import_job_test.cc has the same for imported directories.

#include <gmock/gmock.h>

#include <filesystem>

#include "models/arch/registry.h"
#include "tests/models/hf/files.h"
#include "tests/models/tiny.h"
#include "tests/testing/npy.h"
#include "tests/train/step/run_job.h"
#include "train/checkpoint/inputs.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/paths.h"
#include "train/data/arrays.h"
#include "train/data/blend.h"
#include "train/data/indexed.h"
#include "train/data/synthetic.h"
#include "train/data/text.h"
#include "train/tools/indexed_writer.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;

std::string Read(const std::string& path) { return ReadFile(path).value(); }

class ReplacedInputs : public ::testing::Test {
 protected:
  // A job that has trained two of its four steps.
  JobConfig Begun(const DataConfig& data) const {
    JobConfig job = TinyJob(scratch_ + "/job");
    job.model.architecture->fields["vocab"] = int64_t{256};
    job.data = data;
    if (data.source() == &ArraysSource()) OfImages(job);
    EXPECT_TRUE(RunJob(job)[0].status.ok());
    job.steps = 4;
    return job;
  }
  static void OfImages(JobConfig& job) {
    const ModelConfig dit = TinyOf("dit");
    job.model.architecture = GivenModel{.family = "dit"};
    for (const Field& field : FieldsOf(dit)) {
      job.model.architecture->fields[field.rule.name] = field.value;
    }
    job.batch.sequence = FactsOf(dit).max_sequence;
  }

  std::string Text(const std::string& name, char letter) const {
    WriteBytes(scratch_ + "/" + name, std::string(5000, letter));
    return scratch_ + "/" + name;
  }
  std::string Indexed(const std::string& name, int32_t token) const {
    const std::string prefix = scratch_ + "/" + name;
    auto writer = IndexedWriter::Create(prefix, IndexDType::kUint8);
    CHECK(writer.ok()) << writer.status();
    for (int i = 0; i < 4; ++i) CHECK((*writer)->AddDocument(std::vector(100, token + i)).ok());
    CHECK((*writer)->Finish().ok());
    return prefix;
  }

  // Runs the job's second attempt where the file has another byte, and then as it was.
  void ExpectRefusedAndThenTheSame(const JobConfig& job, const std::string& path,
                                   const std::string& field) {
    SCOPED_TRACE(path);
    const std::string content = Read(path), directory = job.checkpoint->directory;
    const std::string digest = NewestDigest(directory);
    std::string other = content;
    other.back() ^= 1;
    std::filesystem::remove(path);
    WriteBytes(path, other);
    const auto runs = RunJob(job, {.ranks = 2, .epoch = epoch_++, .resume = true});
    for (const RankRun& run : runs) {
      EXPECT_TRUE(absl::IsInvalidArgument(run.status)) << run.status;
      EXPECT_TRUE(run.records.empty());
    }
    EXPECT_THAT(
        std::string(runs[0].status.message()),
        ::testing::AllOf(::testing::StartsWith(field + ": "), HasSubstr(path),
                         HasSubstr("is not the file that attempt 1 read: wanted "),
                         HasSubstr("; to train on with other files, submit a job with another "
                                   "checkpoint.directory and with init_from: " +
                                   directory)));
    EXPECT_EQ(PathsOfComplete(ListCheckpoints(directory).value()).size(), 1u);
    EXPECT_EQ(NewestDigest(directory), digest);
    // As a copy has it: another inode, other times.
    std::filesystem::remove(path);
    WriteBytes(path, content);
  }

  // Each file in turn; then the job goes on.
  void ExpectEachIsCompared(const JobConfig& job,
                            const std::vector<std::pair<std::string, std::string>>& files) {
    for (const auto& [field, path] : files) ExpectRefusedAndThenTheSame(job, path, field);
    const RankRun run = RunJob(job, {.epoch = epoch_++, .resume = true})[0];
    ASSERT_TRUE(run.status.ok()) << run.status;
    EXPECT_EQ(run.start.step, 2);
  }

  const std::string scratch_ = EmptyDirectory("scratch");
  int64_t epoch_ = 2;
};

TEST_F(ReplacedInputs, OfText) {
  const std::string path = Text("corpus.txt", 'a');
  ExpectEachIsCompared(Begun(TextData{.path = path}), {{"data.text.path", path}});
}

TEST_F(ReplacedInputs, OfIndexedDocuments) {
  const std::string prefix = Indexed("corpus", 1);
  const JobConfig job = Begun(IndexedData{.prefix = prefix});
  ExpectEachIsCompared(job, {{"data.indexed.prefix", prefix + ".bin"}});
  // A corpus that has grown, which is legal by itself.
  auto writer = IndexedWriter::Create(prefix, IndexDType::kUint8);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE((*writer)->AddDocument(std::vector(100, 1 + i)).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  const absl::Status grown = RunJob(job, {.epoch = epoch_++, .resume = true})[0].status;
  EXPECT_THAT(std::string(grown.message()), HasSubstr(prefix + ".idx is not the file that "));
}

TEST_F(ReplacedInputs, OfABlend) {
  const std::string indexed = Indexed("corpus", 1), text = Text("other.txt", 'b');
  BlendData blend;
  blend.datasets = {{.weight = 1, .prefix = indexed, .path = ""},
                    {.weight = 2, .prefix = "", .path = text}};
  ExpectEachIsCompared(Begun(blend), {{"data.blend.datasets[0].prefix", indexed + ".bin"},
                                      {"data.blend.datasets[1].path", text}});
}

TEST_F(ReplacedInputs, OfArrays) {
  const std::string latents = scratch_ + "/x.npy", labels = scratch_ + "/y.npy";
  const int64_t samples = 16, elements = samples * 3 * 6 * 6;  // TinyDit's.
  WriteBytes(latents, Npy("<f4", {samples, 3, 6, 6}, std::vector<float>(size_t(elements), 0.5f)));
  WriteBytes(labels, Npy("|u1", {samples}, std::vector<uint8_t>(size_t(samples), 0)));
  ExpectEachIsCompared(Begun(ArraysData{.latents = latents, .labels = labels}),
                       {{"data.arrays.latents", latents}, {"data.arrays.labels", labels}});
}

// Bug it must catch: what was replaced before the first checkpoint is what the job trains.
TEST_F(ReplacedInputs, BeforeTheFirstCheckpoint) {
  const std::string path = Text("corpus.txt", 'a');
  JobConfig job = TinyJob(scratch_ + "/job");
  job.model.architecture->fields["vocab"] = int64_t{256};
  job.data = TextData{.path = path};
  const RunOptions dies{.before_attempt = [](int, int64_t step, int, StepState&) {
    if (step == 2) throw DeviceError(DeviceError::Kind::kDevice, "killed");
  }};
  EXPECT_EQ(RunJob(job, dies)[0].thrown.substr(0, 6), "killed");
  Text("corpus.txt", 'b');
  const absl::Status status = RunJob(job, {.epoch = 2, .resume = true})[0].status;
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("submit the job with another checkpoint.directory"));
  Text("corpus.txt", 'a');
  EXPECT_TRUE(RunJob(job, {.epoch = 3, .resume = true})[0].status.ok());
}

// Each host has a file of that name, as where data are copied to local disks.
TEST_F(ReplacedInputs, OnOneHostAlone) {
  for (const char* host : {"/host-0", "/host-1"}) {
    std::filesystem::create_directory(scratch_ + host);
    Text(absl::StrCat(host, "/corpus.txt"), 'a');
  }
  JobConfig job = TinyJob(scratch_ + "/shared/job");
  job.model.architecture->fields["vocab"] = int64_t{256};
  job.data = TextData{.path = "corpus.txt"};
  std::filesystem::create_directory(scratch_ + "/shared");
  RunOptions options{.ranks = 2, .roots = [&](int rank) {
                       return std::vector<std::string>{absl::StrCat(scratch_, "/host-", rank),
                                                       scratch_ + "/shared"};
                     }};
  const auto first = RunJob(job, options);
  ASSERT_TRUE(first[0].status.ok()) << first[0].status;
  Text("host-1/corpus.txt", 'b');
  options.resume = true;
  options.epoch = 2;
  job.steps = 4;
  for (const RankRun& run : RunJob(job, options)) {
    EXPECT_THAT(std::string(run.status.message()),
                HasSubstr("is not the file that attempt 1 read"));
  }
  // Before any attempt has said what it reads, the hosts are compared with each other.
  job.checkpoint->directory = scratch_ + "/shared/another";
  options.resume = false;
  options.epoch = 1;
  const auto others = RunJob(job, options);
  EXPECT_THAT(std::string(others[0].status.message()),
              ::testing::AllOf(::testing::StartsWith("rank 1: data.text.path: corpus.txt is not "),
                               HasSubstr("that rank 0 read"),
                               HasSubstr("; all hosts need the same files")));
  // The job has claimed nothing, so that it can be submitted again with the files mended.
  EXPECT_FALSE(Exists(absl::StrCat(job.checkpoint->directory, "/", kOwnerName)));
}

// An earlier release has trained the first steps, or somebody has damaged the record.
TEST_F(ReplacedInputs, WithoutARecordTheNextAttemptMakesOne) {
  const std::string path = Text("corpus.txt", 'a');
  const JobConfig job = Begun(TextData{.path = path});
  const std::string directory = job.checkpoint->directory;
  WriteBytes(EpochPath(directory, 1) + "/inputs.json", "{\"version\": 1}");
  JobConfig three = job;
  three.steps = 3;
  const RankRun run = RunJob(three, {.epoch = 2, .resume = true})[0];
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(run.start.step, 2);
  Text("corpus.txt", 'b');
  EXPECT_THAT(std::string(RunJob(job, {.epoch = 3, .resume = true})[0].status.message()),
              HasSubstr("is not the file that attempt 2 read"));
}

TEST_F(ReplacedInputs, ARecordOfALaterReleaseIsTheHostsFailure) {
  const JobConfig job = Begun(TextData{.path = Text("corpus.txt", 'a')});
  WriteBytes(EpochPath(job.checkpoint->directory, 1) + "/inputs.json", "{\"version\": 2}");
  const absl::Status status = RunJob(job, {.epoch = 2, .resume = true})[0].status;
  EXPECT_TRUE(IsStorageFault(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("newer Trainyard"));
}

// A path says nothing of what is there, and what the run read there before is not known.
TEST_F(ReplacedInputs, APathWithoutARecordIsRefusedWhereARunGoesOn) {
  BlendData blend;
  blend.datasets = {{.weight = 1, .prefix = "", .path = Text("corpus.txt", 'a')}};
  JobConfig job = Begun(blend);
  job.continues = ContinuesConfig{.job = "j-1", .allow = {}};
  const auto go_on = [&] {
    const std::string id = absl::StrCat("j-", epoch_);
    return RunJob(job, {.job_id = id, .epoch = epoch_++})[0].status;
  };
  blend.datasets[0] = {.weight = 1, .prefix = Indexed("corpus", 1), .path = ""};
  job.data = blend;
  const absl::Status other_kind = go_on();
  EXPECT_TRUE(absl::IsInvalidArgument(other_kind)) << other_kind;
  EXPECT_THAT(std::string(other_kind.message()),
              ::testing::AllOf(HasSubstr("data.blend.datasets[0].prefix: wanted \"\""),
                               HasSubstr("--allow data.blend.datasets[0].prefix")));

  blend.datasets[0] = {.weight = 1, .prefix = "", .path = Text("copy.txt", 'a')};
  job.data = blend;
  const std::string record = EpochPath(job.checkpoint->directory, 1) + "/inputs.json";
  const std::string text = Read(record);
  WriteBytes(record, "{\"version\": 1}");
  EXPECT_THAT(std::string(go_on().message()), HasSubstr("data.blend.datasets[0].path: wanted"));
  WriteBytes(record, text);
  EXPECT_EQ(go_on(), absl::OkStatus());
}

TEST_F(ReplacedInputs, SyntheticDataHaveNone) {
  const JobConfig job = Begun(SyntheticData{});
  EXPECT_FALSE(Exists(EpochPath(job.checkpoint->directory, 1) + "/inputs.json"));
}

}  // namespace
}  // namespace trainyard::testing
