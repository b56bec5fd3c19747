// Proves that a token beyond the vocabulary ends a job at its start, however late it would be read,
// and that a later attempt does not read all tokens again.

#include <gmock/gmock.h>

#include <filesystem>
#include <utility>

#include "tests/models/hf/files.h"
#include "tests/train/step/run_job.h"
#include "train/checkpoint/inputs.h"
#include "train/checkpoint/lineage.h"
#include "train/checkpoint/paths.h"
#include "train/data/indexed.h"
#include "train/tools/indexed_writer.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A file whose last token is `last`. No step reads it.
std::string Corpus(const std::string& prefix, int32_t last) {
  auto writer = IndexedWriter::Create(prefix, IndexDType::kUint16);
  CHECK(writer.ok()) << writer.status();
  std::vector<int32_t> tokens(3000, 7);
  tokens.back() = last;
  CHECK((*writer)->AddDocument(tokens).ok());
  CHECK((*writer)->Finish().ok());
  return prefix;
}

class TokensOfAJob : public ::testing::Test {
 protected:
  JobConfig Job(const std::string& prefix) const {
    JobConfig job = TinyJob(scratch_ + "/job");
    job.model.architecture->fields["vocab"] = int64_t{256};
    job.data = IndexedData{.prefix = prefix};
    return job;
  }
  const std::string scratch_ = EmptyDirectory("scratch");
};

TEST_F(TokensOfAJob, AreCheckedBeforeTheFirstStepByOneRankOrMany) {
  const JobConfig job = Job(Corpus(scratch_ + "/bad", 256));
  for (const int ranks : {1, 2}) {
    const std::vector<RankRun> runs = RunJob(job, {.ranks = ranks});
    for (const RankRun& run : runs) {
      EXPECT_EQ(run.status.code(), absl::StatusCode::kOutOfRange) << run.status;
      EXPECT_THAT(std::string(run.status.message()),
                  AllOf(HasSubstr("data.indexed.prefix: "), HasSubstr("bad.bin: token 256"),
                        HasSubstr("wanted 0 to 255, the model's vocabulary")));
      EXPECT_TRUE(run.records.empty());
    }
    EXPECT_FALSE(Exists(absl::StrCat(job.checkpoint->directory, "/", kOwnerName)));
  }
}

TEST_F(TokensOfAJob, AreNotReadAgainWhereARecordCoversThem) {
  const std::string prefix = Corpus(scratch_ + "/good", 255);
  JobConfig job = Job(prefix);
  ASSERT_TRUE(RunJob(job)[0].status.ok());
  const std::string directory = job.checkpoint->directory;
  const auto read = [&] {
    return ReadInputs(directory, ReadLineage(directory).value()).value().value();
  };
  EXPECT_EQ(read().tokens_below, 256);
  // A record that says so of a bad file is believed: nobody looks again.
  Corpus(prefix, 999);
  RecordedInputs bad = read();
  for (InputFingerprint& file : bad.files) {
    file = TakeFingerprint(file.field, file.name, prefix + file.name, Roots()).value();
  }
  ASSERT_TRUE(WriteInputs(directory, bad, LocalStorage()).ok());
  job.steps = 4;
  EXPECT_TRUE(RunJob(job, {.epoch = 2, .resume = true})[0].status.ok());
  EXPECT_EQ(read().epoch, 2);
  EXPECT_EQ(read().tokens_below, 256) << "each attempt hands it on";
  // The record is of other files, or of none.
  bad = read();
  const std::vector<InputFingerprint> files = std::exchange(bad.files, {});
  ASSERT_TRUE(WriteInputs(directory, bad, LocalStorage()).ok());
  EXPECT_EQ(RunJob(job, {.epoch = 3, .resume = true})[0].status.code(),
            absl::StatusCode::kOutOfRange);
  bad.files = files;
  bad.tokens_below = 0;
  ASSERT_TRUE(WriteInputs(directory, bad, LocalStorage()).ok());
  job.steps = 6;
  EXPECT_EQ(RunJob(job, {.epoch = 4, .resume = true})[0].status.code(),
            absl::StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace trainyard::testing
