// Proves that following a job survives the controller's restart without repeating itself, and that
// verbs end by their outcome: what the user's script sees.

#include "cli/follow.h"

#include <gmock/gmock.h>

#include <sstream>

#include "cli/command_line.h"
#include "cli/errors.h"
#include "cli/verbs/verbs.h"
#include "common/files.h"
#include "tests/cli/fake_controller.h"

namespace trainyard::cli {
namespace {

v1::WatchJobResponse Change(uint64_t revision, v1::JobState state, const std::string& reason = "") {
  v1::WatchJobResponse response;
  response.mutable_job()->set_id("j-1");
  response.mutable_job()->set_revision(revision);
  response.mutable_job()->set_state(state);
  response.mutable_job()->set_state_reason(reason);
  return response;
}

class FollowTest : public ::testing::Test {
 protected:
  int Trainyard(const std::vector<std::string>& words) {
    Output output(out_, err_, Terminal());
    return RunCommandLine(Verbs(), words,
                          {.controller = controller_->address(), .binary_directory = "/x"}, output);
  }

  std::unique_ptr<FakeController> controller_ = std::make_unique<FakeController>();
  std::ostringstream out_, err_;
};

TEST_F(FollowTest, ARestartOfTheControllerIsNotSeen) {
  std::atomic<bool> first_seen{false};
  controller_->watch = [&](const v1::WatchJobRequest&,
                           grpc::ServerWriter<v1::WatchJobResponse>& writer) {
    writer.Write(Change(3, v1::JOB_STATE_RUNNING));
    first_seen = true;
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "shutting down");
  };
  Client client(controller_->address());
  Output output(out_, err_, Terminal());
  std::thread restart([&] {
    while (!first_seen) std::this_thread::yield();
    const int port = controller_->port();
    controller_.reset();
    controller_ = std::make_unique<FakeController>(port);
    controller_->watch = [&](const v1::WatchJobRequest& request,
                             grpc::ServerWriter<v1::WatchJobResponse>& writer) {
      EXPECT_EQ(request.after_revision(), 3u);
      writer.Write(Change(4, v1::JOB_STATE_RECOVERING, "rank 1 on w2 was killed by signal 9"));
      writer.Write(Change(5, v1::JOB_STATE_SUCCEEDED));
      return grpc::Status::OK;
    };
  });
  const absl::Status status = FollowJob(client, "j-1", output);
  restart.join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(out_.str(),
            "j-1 RUNNING\nj-1 RECOVERING: rank 1 on w2 was killed by signal 9\nj-1 SUCCEEDED\n");
}

TEST_F(FollowTest, AnOlderStoreIsFollowedFromItsStart) {
  controller_->watch = [&](const v1::WatchJobRequest& request,
                           grpc::ServerWriter<v1::WatchJobResponse>& writer) {
    if (request.after_revision() == 9) return grpc::Status(grpc::StatusCode::OUT_OF_RANGE, "newer");
    if (out_.str().empty()) {
      writer.Write(Change(9, v1::JOB_STATE_RUNNING));
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "restarting");
    }
    writer.Write(Change(2, v1::JOB_STATE_CANCELLED, "by the user"));
    return grpc::Status::OK;
  };
  EXPECT_EQ(Trainyard({"watch", "j-1"}), 3);
  EXPECT_EQ(out_.str(), "j-1 RUNNING\n");
  EXPECT_EQ(err_.str(), "error: job j-1 CANCELLED: by the user\n");
}

TEST_F(FollowTest, AJobThatIsNotThereIsAFailure) {
  controller_->watch = [](const v1::WatchJobRequest&, grpc::ServerWriter<v1::WatchJobResponse>&) {
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "no job j-9");
  };
  EXPECT_EQ(Trainyard({"watch", "j-9"}), 1);
  EXPECT_EQ(err_.str(), "error: no job j-9\n");
}

// Each stream starts over; catches lines that are left out from the second interruption on.
TEST_F(FollowTest, LogsAreShownOnceHoweverOftenTheirStreamBreaks) {
  std::atomic<int> streams = 0;
  controller_->logs = [&](const v1::StreamLogsRequest&,
                          grpc::ServerWriter<v1::StreamLogsResponse>& writer) {
    const int last = 3 * ++streams;
    v1::StreamLogsResponse response;
    for (int i = 1; i <= last; ++i) response.add_lines()->set_text(absl::StrCat("line ", i));
    writer.Write(response);
    if (last == 9) return grpc::Status::OK;
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "restarting");
  };
  EXPECT_EQ(Trainyard({"logs", "j-1", "--follow"}), 0) << err_.str();
  std::string lines;
  for (int i = 1; i <= 9; ++i) absl::StrAppend(&lines, " [0] line ", i, "\n");
  EXPECT_EQ(out_.str(), lines);
}

// Bug it must catch: a stream that is opened again leaves out as many lines as were seen, although
// the controller no longer keeps the first of them.
TEST_F(FollowTest, LogsGoOnBehindTheLastLineWhateverIsStillKept) {
  std::atomic<int> streams = 0;
  controller_->logs = [&](const v1::StreamLogsRequest& request,
                          grpc::ServerWriter<v1::StreamLogsResponse>& writer) {
    const uint64_t last = 4 * uint64_t(++streams), kept = 4;
    v1::StreamLogsResponse response;
    for (uint64_t n = std::max(request.after(), last - kept) + 1; n <= last; ++n) {
      response.add_lines()->set_text(absl::StrCat("line ", n));
      response.mutable_lines(response.lines_size() - 1)->set_n(n);
    }
    writer.Write(response);
    if (last == 12) return grpc::Status::OK;
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "restarting");
  };
  EXPECT_EQ(Trainyard({"logs", "j-1", "--follow"}), 0) << err_.str();
  std::string lines;
  for (int n = 1; n <= 12; ++n) absl::StrAppend(&lines, " [0] line ", n, "\n");
  EXPECT_EQ(out_.str(), lines);
}

// An older controller takes over and back: lines without numbers are counted.
TEST_F(FollowTest, LogsOfControllersThatDoNotNumberThemAreCounted) {
  std::atomic<int> streams = 0;
  controller_->logs = [&](const v1::StreamLogsRequest& request,
                          grpc::ServerWriter<v1::StreamLogsResponse>& writer) {
    const uint64_t last = 3 * uint64_t(++streams);
    const bool numbers = streams % 2 == 0;
    v1::StreamLogsResponse response;
    for (uint64_t n = numbers ? request.after() + 1 : 1; n <= last; ++n) {
      response.add_lines()->set_text(absl::StrCat("line ", n));
      if (numbers) response.mutable_lines(response.lines_size() - 1)->set_n(n);
    }
    writer.Write(response);
    if (last == 9) return grpc::Status::OK;
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "restarting");
  };
  EXPECT_EQ(Trainyard({"logs", "j-1", "--follow"}), 0) << err_.str();
  std::string lines;
  for (int n = 1; n <= 9; ++n) absl::StrAppend(&lines, " [0] line ", n, "\n");
  EXPECT_EQ(out_.str(), lines);
}

class SubmitTest : public FollowTest {
 protected:
  SubmitTest() {
    EXPECT_TRUE(WriteFileAtomic(spec_, "name: a\nsteps: 5\n").ok());
    controller_->submit = [&](const v1::SubmitJobRequest& request,
                              v1::SubmitJobResponse& response) {
      request_ = request;
      *response.mutable_job()->mutable_spec() = request.spec();
      if (!request.validate_only()) response.mutable_job()->set_id("j-1");
      return grpc::Status::OK;
    };
  }
  const std::string spec_ = ::testing::TempDir() + "/submit_test.yaml";
  v1::SubmitJobRequest request_;
};

TEST_F(SubmitTest, PrintsJustTheJobsId) {
  EXPECT_EQ(Trainyard({"submit", spec_, "--set", "steps=7"}), 0);
  EXPECT_EQ(out_.str(), "j-1\n");
  EXPECT_EQ(err_.str(), "");
  EXPECT_EQ(request_.spec().steps(), 7u);
  EXPECT_EQ(request_.request_id().size(), 36u);
}

TEST_F(SubmitTest, ValidateOnlyPrintsNoId) {
  EXPECT_EQ(Trainyard({"submit", spec_, "--validate-only"}), 0);
  EXPECT_TRUE(request_.validate_only());
  EXPECT_EQ(out_.str(), "");
}

TEST_F(SubmitTest, WatchExitsByTheOutcome) {
  controller_->watch = [](const v1::WatchJobRequest&,
                          grpc::ServerWriter<v1::WatchJobResponse>& writer) {
    writer.Write(Change(1, v1::JOB_STATE_FAILED, "cannot open /data/x: No such file or directory"));
    return grpc::Status::OK;
  };
  EXPECT_EQ(Trainyard({"submit", spec_, "--watch"}), 3);
  EXPECT_EQ(out_.str(), "j-1\n");
  EXPECT_EQ(err_.str(), "error: job j-1 FAILED: cannot open /data/x: No such file or directory\n");
}

TEST_F(SubmitTest, AMissingSpecIsNamed) {
  EXPECT_EQ(Trainyard({"submit", "/no/such.yaml"}), 1);
  EXPECT_THAT(err_.str(), ::testing::HasSubstr("/no/such.yaml"));
}

TEST_F(FollowTest, GetShowsWhatWasChangedOfThePreset) {
  v1::Model& model = *controller_->job.mutable_spec()->mutable_model();
  model.set_preset("llama3-8b");
  model.mutable_overrides()->set_layers(2);
  model.mutable_overrides()->set_norm_eps(1e-6);
  EXPECT_EQ(Trainyard({"get", "j-1"}), 0);
  EXPECT_THAT(out_.str(), ::testing::HasSubstr(" llama3-8b with layers 2, norm_eps 1e-06\n"));
  (*model.mutable_overrides()->mutable_fields())["window"] = "64";
  EXPECT_EQ(Trainyard({"get", "j-1"}), 0);
  EXPECT_THAT(out_.str(),
              ::testing::HasSubstr(" llama3-8b with layers 2, norm_eps 1e-06, window 64\n"));
  model.clear_overrides();
  model.clear_preset();
  model.mutable_architecture()->set_family("gpt3");
  model.mutable_architecture()->set_hidden(64);
  EXPECT_EQ(Trainyard({"get", "j-1"}), 0);
  EXPECT_THAT(out_.str(), ::testing::HasSubstr(" gpt3 with hidden 64\n"));
}

TEST_F(FollowTest, GetShowsTheBestCheckpointBesideTheNewest) {
  for (const uint64_t step : {40, 60}) {
    v1::Checkpoint& checkpoint = *controller_->job.add_checkpoints();
    checkpoint.set_step(step);
    checkpoint.set_path(absl::StrCat("runs/a/epoch-1/step-", step));
  }
  EXPECT_EQ(Trainyard({"get", "j-1"}), 0);
  EXPECT_THAT(out_.str(), ::testing::Not(::testing::HasSubstr("best")));
  controller_->job.mutable_best_checkpoint()->set_step(40);
  controller_->job.mutable_best_checkpoint()->set_validation_loss(1.25);
  EXPECT_EQ(Trainyard({"get", "j-1"}), 0);
  EXPECT_THAT(out_.str(),
              ::testing::HasSubstr(
                  "best          runs/a/epoch-1/step-40 (step 40, validation loss 1.25)\n"));
  controller_->job.clear_checkpoints();
  EXPECT_EQ(Trainyard({"get", "j-1"}), 0);
  EXPECT_THAT(out_.str(), ::testing::HasSubstr("best          step 40, validation loss 1.25\n"));
}

TEST_F(FollowTest, ListShowsNoLossThatIsNotKnown) {
  controller_->list = [](const v1::ListJobsRequest&, v1::ListJobsResponse& response) {
    v1::Job& job = *response.add_jobs();
    job.set_id("j-1");
    job.mutable_spec()->set_steps(10);
    job.mutable_progress()->set_step(5);  // As after a resume.
    *response.add_jobs() = job;
    response.mutable_jobs(1)->mutable_progress()->set_loss(2.5);
    return grpc::Status::OK;
  };
  EXPECT_EQ(Trainyard({"list"}), 0);
  EXPECT_THAT(out_.str(), ::testing::HasSubstr("5/10\n"));
  EXPECT_THAT(out_.str(), ::testing::ContainsRegex("5/10 +2.5\n"));
}

TEST_F(FollowTest, ListAsksForAllPagesUpToItsLimit) {
  controller_->list = [](const v1::ListJobsRequest& request, v1::ListJobsResponse& response) {
    const int begin = request.page_token().empty() ? 0 : std::stoi(request.page_token());
    for (int i = begin; i < begin + 2 && i < begin + int(request.page_size()); ++i) {
      response.add_jobs()->set_id(absl::StrCat("j-", i));
    }
    response.set_next_page_token(std::to_string(begin + 2));
    return grpc::Status::OK;
  };
  EXPECT_EQ(Trainyard({"list", "--limit", "5", "-o", "jsonl"}), 0);
  const std::string lines = out_.str();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 5);
  EXPECT_EQ(Trainyard({"list", "--state", "asleep"}), 2);
  EXPECT_THAT(err_.str(), ::testing::HasSubstr("found 'asleep'"));
}

// Bug it must catch: while no attempt trains, the step of the dead one looks like progress.
TEST_F(FollowTest, ListSaysWhatAStepIsThatNoAttemptTrains) {
  controller_->list = [](const v1::ListJobsRequest&, v1::ListJobsResponse& response) {
    const auto add = [&](v1::JobState state, uint64_t step) -> v1::Job& {
      v1::Job& job = *response.add_jobs();
      job.set_state(state);
      job.mutable_spec()->set_steps(200);
      job.mutable_progress()->set_step(step);
      return job;
    };
    add(v1::JOB_STATE_RUNNING, 57);
    add(v1::JOB_STATE_RECOVERING, 58);
    add(v1::JOB_STATE_STARTING, 59);
    add(v1::JOB_STATE_STARTING, 40).set_resumed_step(40);
    add(v1::JOB_STATE_STARTING, 0);
    return grpc::Status::OK;
  };
  EXPECT_EQ(Trainyard({"list"}), 0);
  for (const char* cell :
       {"  57/200", "  reached 58/200", "  reached 59/200", "  from 40/200", "  0/200"}) {
    EXPECT_THAT(out_.str(), ::testing::HasSubstr(cell));
  }
}

}  // namespace
}  // namespace trainyard::cli
