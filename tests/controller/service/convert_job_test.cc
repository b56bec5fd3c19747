// Proves that no field of a job, and of what is told of it, gets lost between the controller's
// structs and the messages, and that what a worker says of a step is held to bounds.

#include "controller/service/convert_job.h"

#include <gmock/gmock.h>

#include <limits>

#include "controller/service/bounds.h"
#include "tests/testing/messages.h"

namespace trainyard::controller {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// `clear` takes away what others tell.
template <typename Struct, typename Message>
void ExpectSurvives(void (*clear)(Message& sent) = [](Message&) {}) {
  Message sent, back;
  int next = 0;
  trainyard::testing::FillMessage(sent, next);
  clear(sent);
  Struct held;
  ReadMessage(sent, held);
  WriteMessage(held, back);
  EXPECT_EQ(back.DebugString(), sent.DebugString());
}

TEST(ConvertJob, EveryFieldOfWhatIsToldOfAJobSurvives) {
  ExpectSurvives<JobStep, v1::StepRecord>();
  ExpectSurvives<Checkpoint, v1::Checkpoint>();
  ExpectSurvives<EventRecord, v1::Event>();
  // The stream numbers its lines.
  ExpectSurvives<LogRecord, v1::LogLine>([](v1::LogLine& line) { line.clear_n(); });
}

TEST(ConvertJob, EveryFieldOfAJobIsTold) {
  v1::JobSpec submitted;
  submitted.set_name("a");
  JobFacts facts;
  facts.submitter = "s";
  facts.steps = 9;
  Job job;
  job.id = "job-1";
  job.spec = std::make_shared<const Spec>(Spec{submitted.SerializeAsString(), "", facts});
  job.state = JobState::kRunning;
  job.state_reason = "r";
  job.revision = 1, job.epoch = 2, job.restarts = 3, job.restarts_without_progress = 4;
  job.create_time = job.start_time.emplace() = job.finish_time.emplace() = absl::FromUnixSeconds(5);
  job.ranks.resize(2);
  job.ranks[1] = {.worker_id = "w", .hostname = "h", .device = 6};
  std::swap(job.ranks[0], job.ranks[1]);
  job.resumed_step = 5;
  job.progress = {.step = 7,
                  .furthest_step = 8,
                  .numbers = StepNumbers{.loss = 0.5, .mfu = 0.125},
                  .validation_loss = 0.25,
                  .tokens_per_second = 8,
                  .seconds_per_step = 3,
                  .peak_flops = 2};
  job.checkpoints = {{1, 2, "p", 3, absl::FromUnixSeconds(4)}};
  job.best_checkpoint = BestCheckpoint{2, 1, 0.25};
  job.continued_by = "job-2";
  v1::Job told = ToProto(job);
  EXPECT_EQ(told.spec().name(), "a");
  *told.mutable_spec() = {};
  told.clear_spec();
  // Rank 0 has the number 0, and the spec's own fields are not the controller's.
  EXPECT_THAT(trainyard::testing::EmptyFields(told),
              ::testing::ElementsAre("spec", "placement.rank"));
  EXPECT_EQ(told.state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(told.progress().eta_seconds(), 2 * 3);
  EXPECT_EQ(told.placement(1).rank(), 1u);
  // Bug it must catch: the speed of a dead attempt is shown as if it went on.
  for (const JobState waits : {JobState::kRecovering, JobState::kStarting}) {
    job.state = waits;
    const v1::Progress progress = ToProto(job).progress();
    EXPECT_EQ(progress.step(), 7u);
    EXPECT_EQ(progress.tokens_per_second(), 0);
    EXPECT_EQ(progress.eta_seconds(), 0);
    EXPECT_FALSE(progress.has_mfu());
  }
}

// Bug it must catch: a loss that nobody has measured is told as 0.
TEST(ConvertJob, ALossThatIsNotKnownIsAbsent) {
  Job job;
  job.spec = std::make_shared<const Spec>();
  job.progress.step = 40;  // As after a resume.
  EXPECT_FALSE(ToProto(job).progress().has_loss());
  job.progress.numbers = StepNumbers{};
  EXPECT_TRUE(ToProto(job).progress().has_loss());
}

TEST(ConvertJob, WhatAWorkerSaysOfAStepIsHeldToBounds) {
  v1::StepRecord said;
  said.set_seconds(-1);
  said.mutable_phases()->set_data(std::numeric_limits<double>::infinity());
  said.mutable_phases()->set_forward(0.5);
  said.add_gpu_throttle_reasons(std::string(65, 'x'));
  for (int i = 0; i < 20; ++i) said.add_gpu_throttle_reasons(absl::StrCat("reason ", i));
  ASSERT_TRUE(ApplyBounds(said).ok());
  JobStep record;
  ReadMessage(said, record);
  EXPECT_EQ(record.seconds, 0);
  EXPECT_EQ(record.phases.data, 0);
  EXPECT_EQ(record.phases.forward, 0.5);
  EXPECT_THAT(record.gpu.throttle_reasons, SizeIs(16));
  EXPECT_THAT(record.gpu.throttle_reasons, Contains(std::string(64, 'x')));
}

TEST(ConvertJob, EveryNumberOfAStepHasAField) {
  JobStep record;
  ForEachNumber(record, [](const StepNumber& row, auto& number) {
    number = 0.5;
    EXPECT_NE(v1::StepRecord::descriptor()->FindFieldByName(row.name), nullptr) << row.name;
  });
  v1::PhaseSeconds phases;
  WriteMessage(PhaseSeconds{1, 2, 3, 4, 5, 6, 7, 8}, phases);
  EXPECT_THAT(trainyard::testing::EmptyFields(phases), IsEmpty());
}

}  // namespace
}  // namespace trainyard::controller
