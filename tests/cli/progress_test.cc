// Proves what watching a job says: every state and reason once, progress in place on a terminal and
// at a bounded rate elsewhere, and the outcome as exit code.

#include "cli/progress.h"

#include <gmock/gmock.h>

#include <sstream>

#include "cli/errors.h"
#include "tests/testing/fake_clock.h"

namespace trainyard::cli {
namespace {

class ProgressTest : public ::testing::Test {
 protected:
  v1::Job Job(v1::JobState state, uint64_t step, const std::string& reason = "") {
    v1::Job job;
    job.set_id("j-1");
    job.set_state(state);
    job.set_state_reason(reason);
    job.mutable_progress()->set_step(step);
    job.mutable_progress()->set_total_steps(100);
    job.mutable_progress()->set_loss(2.5);
    job.mutable_progress()->set_tokens_per_second(12'345);
    job.mutable_progress()->set_eta_seconds(80);
    return job;
  }

  FakeClock clock_;
  std::ostringstream out_, err_;
};

TEST_F(ProgressTest, OffATerminalLinesAreBoundedInRate) {
  Output output(out_, err_, Terminal());
  ProgressPrinter printer(clock_, output);
  printer.Show(Job(v1::JOB_STATE_QUEUED, 0, "wants 4 devices, 2 are there"));
  printer.Show(Job(v1::JOB_STATE_QUEUED, 0, "wants 4 devices, 2 are there"));
  for (uint64_t step = 1; step <= 50; ++step) {
    printer.Show(Job(v1::JOB_STATE_RUNNING, step));
    clock_.Advance(absl::Milliseconds(100));
  }
  EXPECT_EQ(out_.str(),
            "j-1 QUEUED: wants 4 devices, 2 are there\n"
            "j-1 RUNNING\n"
            "step 1/100  loss 2.5  12.3k tok/s  ETA 1m20s\n"
            "step 21/100  loss 2.5  12.3k tok/s  ETA 1m20s\n"
            "step 41/100  loss 2.5  12.3k tok/s  ETA 1m20s\n");
}

// Bug it must catch: an MFU that cannot be is shown as if it were one.
TEST_F(ProgressTest, AnMfuAboveAllPeaksIsMarked) {
  v1::Job job = Job(v1::JOB_STATE_RUNNING, 50);
  job.mutable_progress()->set_mfu(1.0);
  EXPECT_EQ(ProgressLine(job), "step 50/100  loss 2.5  12.3k tok/s  MFU 100.0%  ETA 1m20s");
  job.mutable_progress()->set_mfu(1.82);
  EXPECT_EQ(ProgressLine(job),
            "step 50/100  loss 2.5  12.3k tok/s  MFU 182.0% (the devices' peak is too low)  "
            "ETA 1m20s");
  job.mutable_progress()->set_peak_flops(12.3e9);
  EXPECT_THAT(ProgressLine(job),
              ::testing::HasSubstr("MFU 182.0% (the devices' peak of 12.3G FLOP/s is too low)"));
}

// Bug it must catch: a job that has gone back to a checkpoint shows a loss of 0 until its next
// step.
TEST_F(ProgressTest, ALossThatIsNotKnownIsLeftOut) {
  v1::Job job = Job(v1::JOB_STATE_RUNNING, 50);
  job.mutable_progress()->clear_loss();
  job.mutable_progress()->clear_tokens_per_second();
  EXPECT_EQ(ProgressLine(job), "step 50/100  ETA 1m20s");
}

// Bug it must catch: while no attempt trains, the step of the dead one looks like progress, and the
// count of steps then jumps back without a word.
TEST_F(ProgressTest, ANewAttemptSaysWhereItGoesOn) {
  Output output(out_, err_, Terminal());
  ProgressPrinter printer(clock_, output);
  const auto job = [&](v1::JobState state, uint64_t epoch, uint64_t step,
                       std::optional<uint64_t> resumed) {
    v1::Job job = Job(state, step);
    job.set_epoch(epoch);
    job.set_restarts(uint32_t(epoch - 1));
    if (resumed) job.set_resumed_step(*resumed);
    job.mutable_progress()->set_furthest_step(57);
    clock_.Advance(absl::Seconds(10));
    return job;
  };
  printer.Show(job(v1::JOB_STATE_RUNNING, 1, 57, 0));
  const v1::Job dead = job(v1::JOB_STATE_RECOVERING, 1, 57, 0);
  EXPECT_EQ(ProgressLine(dead), "step 57/100  loss 2.5  reached by attempt 1, which has ended");
  printer.Show(dead);
  const v1::Job placed = job(v1::JOB_STATE_STARTING, 2, 57, {});
  EXPECT_EQ(ProgressLine(placed), "step 57/100  loss 2.5  reached before attempt 2");
  printer.Show(placed);
  const v1::Job begun = job(v1::JOB_STATE_STARTING, 2, 40, 40);
  EXPECT_EQ(ProgressLine(begun), "step 40/100  loss 2.5  where attempt 2 goes on");
  printer.Show(begun);
  printer.Show(job(v1::JOB_STATE_RUNNING, 2, 41, 40));
  printer.Show(job(v1::JOB_STATE_RUNNING, 3, 0, 0));
  printer.Show(job(v1::JOB_STATE_RUNNING, 4, 56, 56));
  printer.Show(job(v1::JOB_STATE_RUNNING, 5, 57, 57));
  const std::string numbers = "  loss 2.5  12.3k tok/s  ETA 1m20s\n";
  EXPECT_EQ(out_.str(), "j-1 RUNNING\nstep 57/100" + numbers +
                            "j-1 RECOVERING\nj-1 STARTING\n"
                            "attempt 2 goes on after step 40; steps 41 to 57 are trained again\n"
                            "j-1 RUNNING\nstep 41/100" +
                            numbers +
                            "attempt 3 begins again at step 1; steps 1 to 57 are trained again\n"
                            "attempt 4 goes on after step 56; step 57 is trained again\n"
                            "step 56/100" +
                            numbers + "attempt 5 goes on after step 57\nstep 57/100" + numbers);
}

// Bug it must catch: whoever begins to watch later is told of an old attempt as if it began now.
TEST_F(ProgressTest, AnAttemptThatTrainsAlreadyIsNotAnnounced) {
  Output output(out_, err_, Terminal());
  v1::Job job = Job(v1::JOB_STATE_RUNNING, 0);
  job.set_epoch(3);
  job.set_restarts(2);
  job.set_resumed_step(40);
  ProgressPrinter(clock_, output).Show(job);
  EXPECT_EQ(out_.str(), "j-1 RUNNING\n");
}

TEST_F(ProgressTest, OnATerminalOneLineIsRewritten) {
  Output output(out_, err_, {.live = true, .colour = false, .utf8 = false, .columns = 80});
  ProgressPrinter printer(clock_, output);
  printer.Show(Job(v1::JOB_STATE_RUNNING, 1));
  printer.Show(Job(v1::JOB_STATE_RUNNING, 2));
  printer.Show(Job(v1::JOB_STATE_RECOVERING, 2, "rank 1 on w2 was killed by signal 9"));
  EXPECT_EQ(out_.str(),
            "j-1 RUNNING\n"
            "\rstep 1/100  loss 2.5  12.3k tok/s  ETA 1m20s\x1b[K"
            "\rstep 2/100  loss 2.5  12.3k tok/s  ETA 1m20s\x1b[K\n"
            "j-1 RECOVERING: rank 1 on w2 was killed by signal 9\n");
}

TEST_F(ProgressTest, TheEndShowsTheLastStepTheTimeAndTheCheckpoint) {
  Output output(out_, err_, Terminal());
  ProgressPrinter printer(clock_, output);
  printer.Show(Job(v1::JOB_STATE_RUNNING, 1));
  printer.Show(
      Job(v1::JOB_STATE_RUNNING, 100));  // Too soon for a line, so the end makes up for it.
  v1::Job end = Job(v1::JOB_STATE_SUCCEEDED, 100);
  end.mutable_progress()->set_mfu(0.345);
  end.mutable_progress()->set_validation_loss(2.75);
  end.mutable_start_time()->set_seconds(1000);
  end.mutable_finish_time()->set_seconds(1042);
  end.add_checkpoints()->set_path("runs/a/epoch-1/step-100");
  printer.Show(end);
  EXPECT_EQ(out_.str(),
            "j-1 RUNNING\n"
            "step 1/100  loss 2.5  12.3k tok/s  ETA 1m20s\n"
            "step 100/100  loss 2.5  val 2.75  12.3k tok/s  MFU 34.5%\n"
            "j-1 SUCCEEDED (42s)\n"
            "checkpoint runs/a/epoch-1/step-100\n");
  out_.str("");
  end.mutable_best_checkpoint()->set_step(60);
  end.mutable_best_checkpoint()->set_validation_loss(2.5);
  ProgressPrinter(clock_, output).Show(end);
  EXPECT_THAT(out_.str(), ::testing::EndsWith("step-100\nbest step 60, validation loss 2.5\n"));
}

TEST_F(ProgressTest, AFailureIsLeftToTheOutcome) {
  Output output(out_, err_, Terminal());
  ProgressPrinter printer(clock_, output);
  printer.Show(Job(v1::JOB_STATE_STOPPING, 7, "rank 0 on w1 was killed"));
  v1::Job end = Job(v1::JOB_STATE_FAILED, 7, "rank 0 on w1 was killed");
  end.mutable_start_time()->set_seconds(1000);
  end.mutable_finish_time()->set_seconds(1042);
  printer.Show(end);
  EXPECT_EQ(out_.str(),
            "j-1 STOPPING\n"
            "step 7/100  loss 2.5  12.3k tok/s  ETA 1m20s\n");
  EXPECT_EQ(Outcome(end).message(), "job j-1 FAILED (42s): rank 0 on w1 was killed");
}

TEST_F(ProgressTest, QuietSaysNothing) {
  Output output(out_, err_, Terminal());
  output.SetQuiet();
  ProgressPrinter(clock_, output).Show(Job(v1::JOB_STATE_FAILED, 3, "why"));
  EXPECT_EQ(out_.str(), "");
}

TEST_F(ProgressTest, TheOutcomeIsTheExitCode) {
  EXPECT_EQ(ExitCode(Outcome(Job(v1::JOB_STATE_SUCCEEDED, 100))), 0);
  EXPECT_EQ(ExitCode(Outcome(Job(v1::JOB_STATE_CANCELLED, 5))), 3);
  const absl::Status failed = Outcome(Job(v1::JOB_STATE_FAILED, 5, "rank 0 on w1 was killed"));
  EXPECT_EQ(ExitCode(failed), 3);
  EXPECT_EQ(failed.message(), "job j-1 FAILED: rank 0 on w1 was killed");
}

}  // namespace
}  // namespace trainyard::cli
