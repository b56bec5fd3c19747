// Proves that calls are repeated while the controller is away, give up in bounded time with exit
// code 4, and that field violations survive the wire.

#include "cli/client.h"

#include <gmock/gmock.h>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <set>

#include "cli/errors.h"
#include "cli/format.h"
#include "cli/progress.h"
#include "common/violations.h"
#include "tests/cli/fake_controller.h"
#include "tests/testing/next_release.h"
#include "tests/testing/wall_clock.h"
#include "trainyard/v1/error_details.pb.h"

namespace trainyard::cli {
namespace {

constexpr Client::Patience kShort = {
    .call = absl::Seconds(5), .unreachable = absl::Milliseconds(300), .away = absl::Seconds(10)};

TEST(Client, RepeatsAnUnavailableCallWithTheSameRequestId) {
  std::vector<std::string> request_ids;
  FakeController controller;
  controller.submit = [&](const v1::SubmitJobRequest& request, v1::SubmitJobResponse& response) {
    request_ids.push_back(request.request_id());
    if (request_ids.size() < 3) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "restarting");
    response.mutable_job()->set_id("j-1");
    return grpc::Status::OK;
  };
  Client client(controller.address());
  v1::SubmitJobRequest request;
  request.set_request_id("r");
  const auto response = client.Call(&v1::JobService::Stub::SubmitJob, request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->job().id(), "j-1");
  EXPECT_THAT(request_ids, ::testing::ElementsAre("r", "r", "r"));
}

absl::Status CallWhileTheClockIsSet() {
  std::optional<WallClockJump> jump;
  FakeController controller;
  controller.submit = [&](const v1::SubmitJobRequest&, v1::SubmitJobResponse&) {
    if (jump) return grpc::Status::OK;
    jump.emplace(absl::Hours(24));
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "restarting");
  };
  Client client(controller.address(), {},
                {.call = absl::Minutes(1), .unreachable = absl::Minutes(1), .away = {}});
  return client.Call(&v1::JobService::Stub::SubmitJob, v1::SubmitJobRequest()).status();
}

// Whoever sets the clock while a controller is away must not have its clients give up at once.
// gRPC's timer thread itself waits by the wall clock, so a wait that begins during the jump lasts a
// day. The process of this test is therefore no other test's.
TEST(ClientDeathTest, PatienceIsNotCountedByTheWallClock) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto call = [] {
    const absl::Status status = CallWhileTheClockIsSet();
    std::cerr << status;
    std::_Exit(status.ok() ? 0 : 1);
  };
  EXPECT_EXIT(call(), ::testing::ExitedWithCode(0), "OK");
}

TEST(Client, SaysWhatToDoWhereNoControllerAnswers) {
  std::string address;
  {
    FakeController controller;
    address = controller.address();
  }
  Client client(address, {}, kShort);
  const auto response = client.Call(&v1::JobService::Stub::GetJob, v1::GetJobRequest());
  EXPECT_EQ(ExitCode(response.status()), 4);
  EXPECT_THAT(std::string(response.status().message()),
              ::testing::AllOf(::testing::HasSubstr("no controller answers at " + address),
                               ::testing::HasSubstr("trainyard up"),
                               ::testing::HasSubstr("TRAINYARD_CONTROLLER")));
}

TEST(Client, ACallHasADeadline) {
  std::atomic<bool> release{false};
  FakeController controller;
  controller.submit = [&](const v1::SubmitJobRequest&, v1::SubmitJobResponse&) {
    while (!release) std::this_thread::yield();
    return grpc::Status::OK;
  };
  Client client(
      controller.address(), {},
      {.call = absl::Milliseconds(200), .unreachable = absl::Seconds(1), .away = absl::Seconds(1)});
  const auto response = client.Call(&v1::JobService::Stub::SubmitJob, v1::SubmitJobRequest());
  EXPECT_EQ(ExitCode(response.status()), 4);
  EXPECT_THAT(std::string(response.status().message()), ::testing::HasSubstr("no answer in time"));
  release = true;
}

// A controller that has too much to do.
grpc::Status Busy(int64_t retry_seconds) {
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(retry_seconds);
  google::rpc::Status status;
  status.set_code(8);
  status.add_details()->PackFrom(retry);
  return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many calls wait",
                      status.SerializeAsString());
}

TEST(Client, CallsAgainWhereTheControllerHasTooMuchToDo) {
  int calls = 0;
  FakeController controller;
  controller.submit = [&](const v1::SubmitJobRequest&, v1::SubmitJobResponse&) {
    ++calls;
    if (calls == 1) return Busy(0);
    // Before the call reached its service.
    if (calls == 2) return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "wait");
    return grpc::Status::OK;
  };
  Client client(controller.address(), {},
                {.call = absl::Minutes(1), .unreachable = absl::Minutes(1), .away = {}});
  EXPECT_TRUE(client.Call(&v1::JobService::Stub::SubmitJob, v1::SubmitJobRequest()).ok());
  EXPECT_EQ(calls, 3);
}

TEST(Client, DoesNotWaitLongerThanItsPatience) {
  FakeController controller;
  controller.submit = [&](const v1::SubmitJobRequest&, v1::SubmitJobResponse&) {
    return Busy(3600);
  };
  Client client(controller.address(), {}, kShort);
  const auto response = client.Call(&v1::JobService::Stub::SubmitJob, v1::SubmitJobRequest());
  EXPECT_EQ(response.status(), absl::ResourceExhaustedError("too many calls wait"));
}

TEST(Client, OtherErrorsComeBackAtOnceWithTheirText) {
  int calls = 0;
  FakeController controller;
  controller.submit = [&](const v1::SubmitJobRequest&, v1::SubmitJobResponse&) {
    ++calls;
    return grpc::Status(grpc::StatusCode::ALREADY_EXISTS, "another spec");
  };
  Client client(controller.address());
  const auto response = client.Call(&v1::JobService::Stub::SubmitJob, v1::SubmitJobRequest());
  EXPECT_EQ(response.status(), absl::AlreadyExistsError("another spec"));
  EXPECT_EQ(ExitCode(response.status()), 1);
  EXPECT_EQ(calls, 1);
}

TEST(Client, FieldViolationsSurviveTheWire) {
  FakeController controller;
  controller.submit = [&](const v1::SubmitJobRequest&, v1::SubmitJobResponse&) {
    google::rpc::BadRequest bad_request;
    auto* violation = bad_request.add_field_violations();
    violation->set_field("spec.steps");
    violation->set_description("wanted > 0, found 0");
    google::rpc::Status status;
    status.set_code(3);
    status.add_details()->PackFrom(bad_request);
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "bad spec", status.SerializeAsString());
  };
  Client client(controller.address());
  const auto response = client.Call(&v1::JobService::Stub::SubmitJob, v1::SubmitJobRequest());
  const auto violations = Violations::FromStatus(response.status());
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].field, "spec.steps");
  EXPECT_EQ(violations[0].Description(), "wanted > 0, found 0");
}

TEST(Client, AnErrorWithoutWordsIsStillNamed) {
  const absl::Status status = FromGrpc(grpc::Status(grpc::StatusCode::INTERNAL, ""));
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(), "the controller answered INTERNAL");
}

TEST(Client, AStreamGoesOnWhereItBrokeOffAndEveryMessageIsSeenOnce) {
  int streams = 0;
  FakeController controller;
  controller.steps = [&](const v1::StreamStepsRequest& request,
                         grpc::ServerWriter<v1::StreamStepsResponse>& writer) {
    ++streams;
    for (uint64_t step = request.after_step() + 1; step <= 9; ++step) {
      v1::StreamStepsResponse response;
      response.add_steps()->set_step(step);
      writer.Write(response);
      if (step % 3 == 0 && step < 9) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "bye");
    }
    return grpc::Status::OK;
  };
  Client client(controller.address());
  v1::StreamStepsRequest request;
  std::vector<uint64_t> seen;
  const absl::Status status = client.Read<v1::StreamStepsResponse>(
      [&](v1::JobService::Stub& stub, grpc::ClientContext* context) {
        return stub.StreamSteps(context, request);
      },
      [&](const v1::StreamStepsResponse& response) {
        seen.push_back(response.steps(0).step());
        request.set_after_step(seen.back());
      });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(seen, ::testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_EQ(streams, 3);
}

// Bug it must catch: `logs --follow` of a job without output gives up after 3 seconds, because no
// line has come before the controller went away.
TEST(Client, AStreamThatWasOpenedCountsAsServed) {
  FakeController controller;
  controller.opens = true;
  std::atomic<int> streams = 0;
  controller.logs = [&](const v1::StreamLogsRequest&,
                        grpc::ServerWriter<v1::StreamLogsResponse>& writer) {
    if (++streams < 5) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "restarting");
    writer.Write(v1::StreamLogsResponse());
    return grpc::Status::OK;
  };
  const auto follow = [&](const Client::Patience& patience) {
    streams = 0;
    Client client(controller.address(), {}, patience);
    return client.Read<v1::StreamLogsResponse>(
        [](v1::JobService::Stub& stub, grpc::ClientContext* context) {
          return stub.StreamLogs(context, v1::StreamLogsRequest());
        },
        [](const v1::StreamLogsResponse&) {});
  };
  constexpr Client::Patience kAtOnce = {
      .call = absl::Seconds(5), .unreachable = {}, .away = absl::Minutes(1)};
  EXPECT_TRUE(follow(kAtOnce).ok());
  EXPECT_EQ(streams, 5);
  constexpr Client::Patience kNone = {.call = absl::Seconds(5), .unreachable = {}, .away = {}};
  EXPECT_FALSE(follow(kNone).ok()) << "a controller that opens streams and ends them is away";
  controller.opens = false;
  EXPECT_FALSE(follow(kAtOnce).ok()) << "no controller has served this one";
}

// A controller of the next release may say more than this command line knows.
TEST(Client, UnknownFieldsAndValuesOfAnAnswerAreNoObstacle) {
  FakeController controller;
  controller.job.set_id("j-1");
  controller.job.set_state(v1::JobState(99));
  controller.job.mutable_progress()->set_step(7);
  AddUnknownFields(controller.job);
  Client client(controller.address());
  const auto response = client.Call(&v1::JobService::Stub::GetJob, v1::GetJobRequest());
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->job().progress().step(), 7);
  EXPECT_EQ(ShortState(response->job().state()), "99");
  EXPECT_FALSE(IsTerminal(response->job().state()));
  EXPECT_EQ(ShortState(v1::JOB_STATE_RUNNING), "RUNNING");
  EXPECT_EQ(RoleName(v1::Role(7)), "7");
}

// As a controller of the release before does.
TEST(Client, AMethodThatTheControllerLacksIsSaidToBeNewer) {
  FakeController controller;
  controller.submit = [](const v1::SubmitJobRequest&, v1::SubmitJobResponse&) {
    return grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "this controller has no such method");
  };
  Client client(controller.address());
  const auto response = client.Call(&v1::JobService::Stub::SubmitJob, v1::SubmitJobRequest());
  EXPECT_EQ(response.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(response.status().message()),
              ::testing::HasSubstr("no such method; the controller is of an older release"));
}

}  // namespace
}  // namespace trainyard::cli
