// The stream over a scripted controller: what must not be lost arrives, however the connection
// breaks, and no rank notices that a controller went away.

#include "worker/service/controller_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/testing/next_release.h"
#include "tests/worker/daemon/testing.h"
#include "tests/worker/service/fake_controller.h"
#include "worker/service/address.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;

class ControllerStreamTest : public ::testing::Test {
 protected:
  ControllerStreamTest() {
    auto daemon = Daemon::Create(daemon_options_, metrics_);
    EXPECT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
  }
  ~ControllerStreamTest() override {
    daemon_->KillAll();
    EXPECT_TRUE(WaitFor([&] { return daemon_->num_live_ranks() == 0; }));
    stream_.reset();
  }

  void Connect() {
    auto stream = ControllerStream::Create({.controller = controller_.address(),
                                            .credential = [] { return Credential(); },
                                            .worker_id = "w-1",
                                            .instance_id = "i-1",
                                            .hostname = "host",
                                            .metrics_url = "http://127.0.0.1:1/metrics",
                                            .longest_pause = absl::Milliseconds(200),
                                            .on_registered = {}},
                                           *daemon_);
    ASSERT_TRUE(stream.ok()) << stream.status();
    stream_ = *std::move(stream);
    EXPECT_EQ(controller_.AwaitRegister(1).worker_id(), "w-1");
  }

  // Steps that have arrived, each once.
  std::set<uint64_t> Steps() const {
    std::set<uint64_t> steps;
    for (const v1::ConnectRequest& request : controller_.received()) {
      if (request.has_step()) steps.insert(request.step().record().step());
    }
    return steps;
  }
  bool AwaitSteps(size_t count) const {
    return WaitFor([&] { return Steps().size() >= count; });
  }

  FakeController controller_;
  TemporaryDirectory directory_;
  DaemonOptions daemon_options_ = TestOptions(directory_.path());
  WorkerMetrics metrics_{"host"};
  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<ControllerStream> stream_;
};

TEST_F(ControllerStreamTest, RegistersFirstAndBeatsAsAsked) {
  controller_.set_beat_milliseconds(10);
  Connect();
  const auto beats = [&] {
    return controller_.Count([](const auto& request) { return request.has_heartbeat(); });
  };
  EXPECT_TRUE(WaitFor([&] { return beats() >= 5; }));
  const v1::ConnectRequest first = controller_.received().front();
  ASSERT_TRUE(first.has_register_());
  EXPECT_EQ(first.register_().protocol_version(), 2u);
  EXPECT_EQ(first.register_().devices_size(), 2);
  EXPECT_EQ(first.register_().devices(1).index(), 1u);
  EXPECT_EQ(first.register_().hostname(), "host");
}

TEST_F(ControllerStreamTest, ARankRunsOnOrderAndItsReportsArrive) {
  Connect();
  ASSERT_TRUE(controller_.Start(
      StartMessage("job", 1, {"ready", "step:3", "checkpoint:3", "flush", "report:completed:"})));
  const v1::RankStatus exited = controller_.AwaitRank("job", 1, v1::RANK_STATE_EXITED);
  EXPECT_EQ(exited.cause(), v1::EXIT_CAUSE_COMPLETED);
  EXPECT_EQ(Steps(), (std::set<uint64_t>{1, 2, 3}));
  const auto step = controller_.Await([](const auto& request) { return request.has_step(); });
  EXPECT_EQ(step.step().job_id(), "job");
  EXPECT_EQ(step.step().record().epoch(), 1u);
  EXPECT_EQ(step.step().model_flops(), 1e9);
  EXPECT_DOUBLE_EQ(step.step().record().phases().grad_sync(), 0.002);
  const auto checkpoint =
      controller_.Await([](const auto& request) { return request.has_checkpoint(); });
  EXPECT_EQ(checkpoint.checkpoint().checkpoint().path(), "/data/step-3");
  // All of it acknowledged: nothing waits to be sent again.
  EXPECT_TRUE(WaitFor([&] { return daemon_->outbox().num_reports() == 0; }));
}

// Bug it must catch: a report counted as delivered because it was written to a connection.
TEST_F(ControllerStreamTest, WhatWasNotAcknowledgedIsSentAgainWithItsSequence) {
  controller_.set_acknowledge(false);
  Connect();
  ASSERT_TRUE(controller_.Start(StartMessage("job", 1, {"step:5", "wait"})));
  ASSERT_TRUE(AwaitSteps(5));
  const auto sequences_of = [&](uint64_t step) {
    std::vector<uint64_t> sequences;
    for (const auto& request : controller_.received()) {
      if (request.has_step() && request.step().record().step() == step) {
        sequences.push_back(request.sequence());
      }
    }
    return sequences;
  };
  const uint64_t second = sequences_of(2).at(0);
  ASSERT_TRUE(controller_.Acknowledge(second));
  ASSERT_TRUE(WaitFor([&] { return daemon_->outbox().num_reports() == 3; }));
  controller_.BreakConnection();
  ASSERT_TRUE(WaitFor([&] { return sequences_of(5).size() == 2; }));
  EXPECT_EQ(sequences_of(2).size(), 1u);
  EXPECT_EQ(sequences_of(3), (std::vector<uint64_t>{second + 1, second + 1}));
}

TEST_F(ControllerStreamTest, ARankOutlivesTheControllerAndNoStepIsLost) {
  Connect();
  ASSERT_TRUE(controller_.Start(
      StartMessage("job", 1, {"ready", "step:2", "wait_stop", "step:500", "flush", "wait"})));
  ASSERT_TRUE(AwaitSteps(2));
  const size_t registers =
      controller_.Count([](const auto& request) { return request.has_register_(); });
  controller_.GoAway();
  daemon_->StopRanks({"job", 1, StopMode::kCheckpoint});
  ASSERT_TRUE(WaitFor([&] { return daemon_->outbox().num_reports() >= 498; }));
  controller_.ComeBack();
  const v1::Register again = controller_.AwaitRegister(registers + 1);
  ASSERT_EQ(again.running_size(), 1);
  EXPECT_EQ(again.running(0).job_id(), "job");
  EXPECT_EQ(again.running(0).state(), v1::RANK_STATE_READY);
  EXPECT_TRUE(AwaitSteps(500));
  EXPECT_EQ(daemon_->num_live_ranks(), 1u);
}

// Bug it must catch: lines handed to a connection that is no more. The daemon has surely noticed
// that once it asks to be admitted again; and it forwards what a rank printed before its exit.
TEST_F(ControllerStreamTest, WhatARankPrintsWhileTheControllerIsAwayArrives) {
  Connect();
  ASSERT_TRUE(controller_.Start(
      StartMessage("job", 1, {"ready", "wait_stop", "print:while away", "report:stopped:"})));
  controller_.AwaitRank("job", 1, v1::RANK_STATE_READY);
  controller_.set_admit(false);
  controller_.BreakConnection();
  controller_.AwaitRegister(2);
  daemon_->StopRanks({"job", 1, StopMode::kCheckpoint});
  ASSERT_TRUE(WaitFor([&] { return daemon_->num_live_ranks() == 0; }));
  controller_.set_admit(true);
  controller_.BreakConnection();
  EXPECT_TRUE(controller_
                  .Await([](const auto& request) {
                    return request.log().lines_size() > 0 &&
                           request.log().lines(0).text() == "while away";
                  })
                  .has_log());
}

TEST_F(ControllerStreamTest, ASupersededEpochIsStoppedOnOrderHoweverOften) {
  Connect();
  ASSERT_TRUE(controller_.Start(StartMessage("job", 4, {"wait"})));
  controller_.AwaitRank("job", 4, v1::RANK_STATE_STARTING);
  controller_.BreakConnection();
  controller_.AwaitRegister(2);
  ASSERT_TRUE(WaitFor([&] { return controller_.Stop("job", 4, v1::STOP_MODE_KILL); }));
  ASSERT_TRUE(controller_.Stop("job", 4, v1::STOP_MODE_KILL));
  const v1::RankStatus exited = controller_.AwaitRank("job", 4, v1::RANK_STATE_EXITED);
  EXPECT_EQ(exited.cause(), v1::EXIT_CAUSE_SIGNAL);
  ASSERT_TRUE(controller_.Stop("job", 4, v1::STOP_MODE_KILL));
  ASSERT_TRUE(controller_.Start(StartMessage("job", 5, {"print:fresh", "wait"})));
  EXPECT_TRUE(controller_
                  .Await([](const auto& request) {
                    return request.log().lines_size() > 0 &&
                           request.log().lines(0).text() == "fresh";
                  })
                  .has_log());
}

TEST_F(ControllerStreamTest, TheRendezvousPassesThrough) {
  Connect();
  ASSERT_TRUE(controller_.Start(StartMessage("job", 1, {"set:mine=abc", "get:yours", "exit:0"})));
  const auto set =
      controller_.Await([](const auto& request) { return request.has_rendezvous_set(); });
  EXPECT_EQ(set.rendezvous_set().value(), "abc");
  const auto get =
      controller_.Await([](const auto& request) { return request.has_rendezvous_get(); });
  EXPECT_EQ(get.rendezvous_get().key(), "yours");
  v1::ConnectResponse answer;
  v1::RendezvousValue& value = *answer.mutable_rendezvous_value();
  value.set_job_id("job");
  value.set_epoch(1);
  value.set_key("yours");
  value.set_value("xyz");
  ASSERT_TRUE(controller_.Send(answer));
  controller_.AwaitRank("job", 1, v1::RANK_STATE_EXITED);
  EXPECT_THAT(LogText(directory_.path() + "/ranks/job.1.0"), HasSubstr("got xyz"));
}

TEST_F(ControllerStreamTest, DrainingIsSaidOnEveryConnection) {
  Connect();
  const auto said = [&] {
    return controller_.Count([](const auto& request) { return request.has_draining(); });
  };
  ASSERT_TRUE(WaitFor([&] {
    daemon_->Drain();
    return said() >= 1;
  }));
  const size_t before = said();
  controller_.BreakConnection();
  EXPECT_TRUE(WaitFor([&] { return said() > before; }));
}

// A controller of the next release: messages and fields that this worker does not know.
TEST_F(ControllerStreamTest, WhatANewerControllerSaysBesideItsOrdersIsIgnored) {
  Connect();
  const auto send = [&](v1::ConnectResponse order) {
    AddUnknownFields(order);
    ASSERT_TRUE(controller_.Send(order));
  };
  send({});
  v1::ConnectResponse start;
  *start.mutable_start_ranks() = StartMessage("job", 1, {"ready", "wait_stop", "report:stopped:"});
  send(start);
  controller_.AwaitRank("job", 1, v1::RANK_STATE_READY);
  v1::ConnectResponse stop;
  stop.mutable_stop_ranks()->set_job_id("job");
  stop.mutable_stop_ranks()->set_epoch(1);
  stop.mutable_stop_ranks()->set_mode(v1::StopMode(99));
  send(stop);
  const v1::RankStatus exited = controller_.AwaitRank("job", 1, v1::RANK_STATE_EXITED);
  EXPECT_EQ(exited.cause(), v1::EXIT_CAUSE_STOPPED) << "an unknown way to stop loses steps";
}

// As one that speaks another version of the stream does.
TEST_F(ControllerStreamTest, TheLogSaysWhyAControllerRefusesTheWorker) {
  controller_.set_refusal("worker stream version 2; this controller speaks version 3");
  ::testing::internal::CaptureStderr();
  Connect();
  controller_.AwaitRegister(2);  // The end of the first stream is logged before.
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("this controller speaks version 3"));
}

TEST(AddressTest, TheWayToThisMachineIsLoopback) {
  EXPECT_EQ(*LocalAddressTowards("127.0.0.1:7070"), "127.0.0.1");
}

}  // namespace
}  // namespace trainyard
