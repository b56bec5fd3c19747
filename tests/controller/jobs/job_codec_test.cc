// Proves that a stored job reads back as it was, and that damage is found and named.

#include "controller/jobs/job_codec.h"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace trainyard::controller {
namespace {

Job FullJob() {
  Job job;
  job.state = JobState::kRecovering;
  job.Explain("rank 1 \"died\"\n", "; no restart left");
  job.revision = (uint64_t{7} << 32) + 5;
  job.epoch = 3;
  job.restarts = 2;
  job.restarts_without_progress = 1;
  job.furthest_checkpoint = 80;
  job.create_time = absl::FromUnixMicros(1'700'000'000'123'456);
  job.start_time = job.create_time + absl::Seconds(1);
  job.ranks = {{"w-1", "host", 4, RankPhase::kLost, ExitCause::kNone},
               {"w-2", "other", 0, RankPhase::kExited, ExitCause::kSignal}};
  job.progress = {.step = 41,
                  .furthest_step = 90,
                  .numbers = StepNumbers{.loss = std::nan(""), .mfu = 0.5},
                  .validation_loss = 2.5,
                  .tokens_per_second = 1e6,
                  .seconds_per_step = 0.25};
  job.resumed_step = 40;
  job.checkpoints = {{40, 2, "runs/a/epoch-2/step-40", 123, job.create_time}};
  job.best_checkpoint = BestCheckpoint{2, 40, 2.5};
  job.stop_mode = StopMode::kCheckpoint;
  job.outcome = JobState::kCancelled;
  job.culprit = ExitCause::kSignal;
  job.attempt_end_time = job.create_time + absl::Seconds(9);
  return job;
}

TEST(JobCodec, ReadsBackWhatItWrote) {
  const Job job = FullJob();
  const std::string text = EncodeJob(job);
  const auto read = DecodeJob(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(EncodeJob(*read), text);
  EXPECT_EQ(read->state_reason, "rank 1 \"died\"\n; no restart left");
  EXPECT_EQ(read->happened, "rank 1 \"died\"\n");
  EXPECT_EQ(read->revision, job.revision);
  EXPECT_EQ(read->furthest_checkpoint, 80);
  EXPECT_EQ(read->progress.furthest_step, 90);
  EXPECT_EQ(read->start_time, job.start_time);
  EXPECT_FALSE(read->finish_time.has_value());
  EXPECT_EQ(read->ranks[1].cause, ExitCause::kSignal);
  EXPECT_TRUE(std::isnan(read->progress.loss().value_or(0)));
  EXPECT_EQ(read->progress.validation_loss, 2.5);
  EXPECT_EQ(read->progress.mfu(), 0.5);
  EXPECT_EQ(read->resumed_step, 40);
  EXPECT_EQ(read->checkpoints[0].path, "runs/a/epoch-2/step-40");
  EXPECT_EQ(read->best_checkpoint, job.best_checkpoint);
  EXPECT_EQ(read->attempt_end_time, job.attempt_end_time);
}

TEST(JobCodec, WhatWasNotMeasuredStaysSo) {
  Job job = FullJob();
  job.progress.validation_loss.reset();
  job.progress.numbers.reset();
  const auto read = DecodeJob(EncodeJob(job));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_FALSE(read->progress.numbers.has_value());
  EXPECT_FALSE(read->progress.validation_loss.has_value());
}

// Bug it must catch: after an upgrade, every stored job that never finished a step has a loss of 0.
// Bug it must catch: after a way back, the last release calls a job damaged that has no loss.
TEST(JobCodec, NoLossIsTheLastReleasesZero) {
  Job job = FullJob();
  job.progress.numbers.reset();
  const std::string row = EncodeJob(job);
  EXPECT_EQ(nlohmann::json::parse(row)["progress"]["loss"], 0.0);
  EXPECT_FALSE(DecodeJob(row)->progress.numbers.has_value());
}

TEST(JobCodec, ReadsBackTheBatchesOfEarlierJobs) {
  Job job = FullJob();
  job.earlier_batches = {{.step = 0, .tokens = 64}, {.step = 20, .tokens = 128}};
  job.continued_by = "j-2";
  const auto read = DecodeJob(EncodeJob(job));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->earlier_batches, job.earlier_batches);
  EXPECT_EQ(read->continued_by, "j-2");
}

TEST(JobCodec, ReadsBackFacts) {
  JobFacts facts;
  facts.name = "tiny";
  facts.ranks = 8;
  facts.tensor = 2;
  facts.priority = -5;
  facts.cpu_only = true;
  facts.checkpoint_directory = "runs/a";
  facts.checkpoint_every_steps = 100;
  facts.paths = {{"checkpoint.directory", "runs/a"}, {"init_from", "/data/x"}};
  const auto read = DecodeFacts(EncodeFacts(facts));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(EncodeFacts(*read), EncodeFacts(facts));
  ASSERT_EQ(read->paths.size(), 2u);
  EXPECT_EQ(read->paths[1].field, "init_from");
  EXPECT_EQ(read->paths[1].path, "/data/x");
  EXPECT_EQ(read->priority, -5);
  EXPECT_EQ(read->checkpoint_every_steps, 100);
}

// Bug it must catch: a row that lost a field passes for one of the first releases, and the job
// forgets from where its attempts went on.
TEST(JobCodec, WhatTheFirstReleasesDidNotStoreIsThereAsAWholeOrNotAtAll) {
  const nlohmann::json whole = nlohmann::json::parse(EncodeJob(FullJob()));
  const auto later = {"resumes", "claimed", "epoch_floor", "storage_faults", "strikes"};
  nlohmann::json first = whole;
  for (const char* name : later) {
    nlohmann::json damaged = whole;
    EXPECT_EQ(damaged.erase(name), 1u);
    EXPECT_TRUE(absl::IsDataLoss(DecodeJob(damaged.dump()).status())) << name;
    first.erase(name);
  }
  const auto read = DecodeJob(first.dump());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->claimed) << "by its checkpoint of step 80";
}

// Earlier releases stored the whole reason, and the last ones of them also its consequence, with
// which it ends.
TEST(JobCodec, AReasonOfAnEarlierReleaseStaysAsItIs) {
  nlohmann::json row = nlohmann::json::parse(EncodeJob(FullJob()));
  EXPECT_EQ(row.erase("happened"), 1u);
  for (const bool with_consequence : {true, false}) {
    if (!with_consequence) row.erase("consequence");
    const auto read = DecodeJob(row.dump());
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->state_reason, FullJob().state_reason);
    EXPECT_EQ(read->happened, with_consequence ? FullJob().happened : FullJob().state_reason);
    EXPECT_EQ(read->consequence, with_consequence ? FullJob().consequence : "");
  }
}

// Catches a reader that crashes on, or accepts, a damaged row.
TEST(JobCodec, DamageIsAnErrorAtEveryLength) {
  const std::string text = EncodeJob(FullJob());
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_TRUE(absl::IsDataLoss(DecodeJob(text.substr(0, length)).status())) << length;
  }
  for (const char* wrong : {"[]", "{}", "null", R"({"state": "x"})"}) {
    EXPECT_TRUE(absl::IsDataLoss(DecodeJob(wrong).status())) << wrong;
    EXPECT_TRUE(absl::IsDataLoss(DecodeFacts(wrong).status())) << wrong;
  }
}

}  // namespace
}  // namespace trainyard::controller
