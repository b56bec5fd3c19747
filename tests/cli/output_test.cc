// Proves the three formats: aligned tables without decoration off a terminal, protobuf JSON with
// original names, and plain JSON whose numbers are numbers in full precision.

#include "cli/output.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "cli/answer.h"
#include "cli/errors.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::cli {
namespace {

v1::StepRecord Record() {
  v1::StepRecord record;
  record.set_step(9007199254740993);  // Beyond what a double holds.
  record.set_loss(0.1);
  record.set_grad_norm(std::numeric_limits<double>::infinity());
  record.mutable_phases()->set_forward(1e-7);
  record.mutable_finish_time()->set_seconds(1'700'000'000);
  return record;
}

TEST(PlainJson, NumbersAreNumbersInFullPrecision) {
  EXPECT_EQ(PlainJson(Record()).dump(),
            R"({"step":9007199254740993,"epoch":0,"loss":0.1,"grad_norm":null,"learning_rate":0.0,)"
            R"("tokens":0,"seconds":0.0,"phases":{"data":0.0,"forward":1e-07,"backward":0.0,)"
            R"("grad_sync":0.0,"optimizer":0.0,"pipeline_bubble":0.0,"checkpoint":0.0,)"
            R"("validation":0.0},)"
            R"("finish_time":"2023-11-14T22:13:20.000Z","skipped":false,"gpu_throttle_reasons":[],)"
            R"("generated":[]})");
}

TEST(PlainJson, FieldsWithPresenceAreThereOnlyWhenSet) {
  v1::StepRecord record = Record();
  EXPECT_FALSE(PlainJson(record).contains("mfu"));
  record.set_mfu(0);
  EXPECT_EQ(PlainJson(record).at("mfu"), 0.0);
}

TEST(PlainJson, EnumsMapsAndListsKeepTheApisNames) {
  v1::Job job;
  job.set_state(v1::JOB_STATE_RUNNING);
  (*job.mutable_spec()->mutable_labels())["team"] = "language";
  job.add_placement()->set_worker_id("w1");
  for (const uint32_t rank : {4294967295u, 0u})
    job.mutable_spec()->mutable_profile()->add_ranks(rank);
  const auto json = PlainJson(job);
  EXPECT_EQ(json.at("state"), "JOB_STATE_RUNNING");
  EXPECT_EQ(json.at("spec").at("labels").at("team"), "language");
  EXPECT_EQ(json.at("placement")[0].at("worker_id"), "w1");
  EXPECT_EQ(json.at("spec").at("profile").at("ranks").dump(), "[4294967295,0]");
  job.mutable_spec()->mutable_profile()->clear_ranks();
  EXPECT_EQ(PlainJson(job).at("spec").at("profile").at("ranks").dump(), "[]");
}

TEST(ProtobufJson, KeepsOriginalNamesAndPrintsDefaults) {
  const std::string text = ProtobufJson(Record());
  EXPECT_THAT(text, ::testing::HasSubstr("\"grad_norm\": \"Infinity\""));
  EXPECT_THAT(text, ::testing::HasSubstr("\"step\": \"9007199254740993\""));
  EXPECT_THAT(text, ::testing::HasSubstr("\"skipped\": false"));
}

TEST(ProtobufJson, HasNoLossBeforeOneWasMeasured) {
  v1::Progress progress;
  progress.set_step(40);  // As after a resume.
  EXPECT_THAT(ProtobufJson(progress), ::testing::Not(::testing::HasSubstr("loss")));
  EXPECT_FALSE(PlainJson(progress).contains("loss"));
  progress.set_loss(0);
  EXPECT_THAT(ProtobufJson(progress), ::testing::HasSubstr("\"loss\": 0"));
  progress.set_validation_loss(0);
  EXPECT_THAT(ProtobufJson(progress), ::testing::HasSubstr("\"validation_loss\": 0"));
}

class OutputTest : public ::testing::Test {
 protected:
  std::ostringstream out_, err_;
};

TEST_F(OutputTest, TablesAreAlignedAndUndecoratedOffATerminal) {
  Output output(out_, err_, Terminal());
  output.Table({{"JOB"}, {"STEP", true}, {"WHY"}},
               {{"j-1", "5", ""}, {"j-22", "12345", "late\nly"}});
  EXPECT_EQ(out_.str(),
            "JOB    STEP  WHY\n"
            "j-1       5\n"
            "j-22  12345  late ly\n");
}

TEST_F(OutputTest, HeadsAreBoldWhereThereIsColour) {
  Output output(out_, err_, {.live = true, .colour = true, .utf8 = false, .columns = 80});
  output.Table({{"JOB"}}, {{"j-1"}});
  EXPECT_EQ(out_.str(), "\x1b[1mJOB\x1b[0m\nj-1\n");
}

// Bug it must catch: a job's name or output that moves the cursor, or turns the line's direction.
TEST_F(OutputTest, ATerminalGetsNothingThatItWouldObey) {
  const std::string hostile = "\x1b[2J\xE2\x80\xAE";
  for (const bool live : {true, false}) {
    out_.str("");
    err_.str("");
    Output output(out_, err_, {.live = live, .colour = false, .utf8 = true, .columns = 80});
    output.Table({{"NAME"}}, {{hostile}});
    output.Line(hostile);
    output.LiveLine(hostile);
    const bool raw = out_.str().find(hostile) != std::string::npos;
    EXPECT_EQ(raw, !live) << "a program gets what was said";
    output.Note(hostile);
    output.Error(hostile);
    EXPECT_EQ(err_.str().find(hostile), std::string::npos);
  }
}

TEST_F(OutputTest, ALiveLineIsCutToTheTerminalAndEndedByTheNextLine) {
  Output output(out_, err_, {.live = true, .colour = false, .utf8 = false, .columns = 12});
  output.LiveLine("0123456789abcdef");
  output.LiveLine("short");
  output.Line("done");
  EXPECT_EQ(out_.str(), "\r0123456789a\x1b[K\rshort\x1b[K\ndone\n");
}

TEST_F(OutputTest, QuietSilencesNotesAndKeepsAnswersAndErrors) {
  Output output(out_, err_, Terminal());
  output.SetQuiet();
  output.Note("note");
  output.Line("answer");
  output.Error("one\ntwo");
  EXPECT_EQ(out_.str(), "answer\n");
  EXPECT_EQ(err_.str(), "error: one\nerror: two\n");
}

TEST_F(OutputTest, AListIsOneMessageAsJsonAndALineAnItemAsJsonLines) {
  v1::ListJobsResponse list;
  list.add_jobs()->set_id("j-1");
  list.add_jobs()->set_id("j-2");
  Output output(out_, err_, Terminal());
  EXPECT_FALSE(PrintedAsJson(list, list.jobs(), output));
  ASSERT_TRUE(output.SetFormat("jsonl").ok());
  EXPECT_TRUE(PrintedAsJson(list, list.jobs(), output));
  const std::string lines = out_.str();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2);
  EXPECT_THAT(lines, ::testing::StartsWith("{\"id\":\"j-1\""));
}

TEST_F(OutputTest, AnUnknownFormatIsAUsageError) {
  Output output(out_, err_, Terminal());
  const absl::Status status = output.SetFormat("xml");
  EXPECT_EQ(ExitCode(status), 2);
  EXPECT_EQ(status.message(), "--output: wanted table, json or jsonl, found 'xml'");
}

}  // namespace
}  // namespace trainyard::cli
