// Whatever a trainer prints or says, a message made of it can be parsed by the controller.

#include "worker/service/convert.h"

#include <gmock/gmock.h>

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/resolved_job_format.h"
#include "tests/testing/messages.h"
#include "worker/channel/exit_cause.h"

namespace trainyard {
namespace {

// Bug it must catch: one line of output that is not UTF-8 ends the whole stream, again and again.
TEST(ConvertTest, TextThatIsNotUtf8ParsesAndKeepsItsLegalPart) {
  const RankId id = {"job", 1, 0};
  const Notice log = LogReport{"job", {{absl::UnixEpoch(), 1, 0, "loss \xff\xc3 2.5"}}};
  v1::ConnectRequest request;
  ASSERT_TRUE(request.ParseFromString(ToProto(Outgoing{0, log}).SerializeAsString()));
  EXPECT_EQ(request.log().lines(0).text(), "loss ?? 2.5");

  const Report exit = RankStatus{id, {.message = "said \xe2\x82"}, 0, RankState::kExited};
  ASSERT_TRUE(request.ParseFromString(ToProto(Outgoing{1, exit}).SerializeAsString()));
  EXPECT_EQ(request.rank_status().message(), "said ??");
}

// Controllers and workers of neighbouring releases work together.
TEST(ConvertTest, AJobResolvedInAFormatThatIsNotReadIsTakenAsItWasSubmitted) {
  v1::StartRanks order;
  order.set_job_config("submitted");
  EXPECT_EQ(FromProto(order).job_config, "submitted");
  const auto in_format = [](int64_t format) {
    return absl::StrCat(R"({"format":)", format, R"(,"name":"a"})");
  };
  for (const int64_t read : {kOldestResolvedJobFormat, kResolvedJobFormat}) {
    order.set_resolved_job(in_format(read));
    EXPECT_EQ(FromProto(order).job_config, order.resolved_job());
  }
  for (const std::string& other :
       {in_format(kOldestResolvedJobFormat - 1), in_format(kResolvedJobFormat + 1),
        absl::StrCat(R"({"format":")", kResolvedJobFormat, R"("})"), std::string("{}"),
        std::string("["), absl::StrCat(kResolvedJobFormat)}) {
    order.set_resolved_job(other);
    EXPECT_EQ(FromProto(order).job_config, "submitted") << other;
  }
}

TEST(ConvertTest, EveryFieldOfAnOrderIsHeard) {
  v1::StartRanks message;
  int next = 0;
  testing::FillMessage(message, next);
  const StartOrder order = FromProto(message);
  EXPECT_EQ(order.job_id, message.job_id());
  EXPECT_EQ(order.epoch, message.epoch());
  EXPECT_EQ(order.world, message.world());
  ASSERT_EQ(order.ranks.size(), 1u);
  EXPECT_EQ(order.ranks[0].rank, message.ranks(0).rank());
  EXPECT_EQ(order.ranks[0].device, message.ranks(0).device());
  EXPECT_EQ(order.job_config, message.job_config());
  EXPECT_TRUE(order.claimed);
  EXPECT_EQ(order.recorded_step, message.recorded_step());
  EXPECT_EQ(order.history_after, message.history_after());
  EXPECT_EQ(order.recorded_epoch, message.recorded_epoch());
  EXPECT_THAT(order.roots, ::testing::ElementsAre(message.roots(0)));
}

StepReport FullStep() {
  StepReport report = {{"job", 7, 1}, {}};
  channel::Step& step = report.step;
  ForEachNumber(step, [](const StepNumber&, auto& number) { number = 0.5; });
  step.step = 1, step.tokens = 2, step.seconds = 3, step.skipped = true, step.time = 4;
  step.phases = {1, 2, 3, 4, 5, 6, 7, 8};
  step.model_flops = 5, step.peak_flops = 6;
  step.collectives = {{"all_gather", "data", 3, 4096, 0.5}};
  step.gpu = {.utilization = 1,
              .power_watts = 2,
              .sm_clock_hertz = 3,
              .temperature_celsius = 4,
              .throttle_reasons = {"x"}};
  step.generated = {{"prompt", "text"}};
  return report;
}

TEST(ConvertTest, EveryFieldOfAStepIsSaid) {
  StepReport report = FullStep();
  const v1::StepReport own = ToProto(Outgoing{1, Report(report)}).step();
  EXPECT_THAT(testing::EmptyFields(own), ::testing::ElementsAre("read_by_epoch"));
  EXPECT_EQ(own.record().epoch(), 7u);
  report.step.epoch = 3;
  const v1::StepReport earlier = ToProto(Outgoing{1, Report(report)}).step();
  EXPECT_THAT(testing::EmptyFields(earlier), ::testing::IsEmpty());
  EXPECT_EQ(earlier.record().epoch(), 3u);
  EXPECT_EQ(earlier.read_by_epoch(), 7u);
}

TEST(ConvertTest, EveryFieldOfARanksStateIsSaid) {
  const StartRecord start = {1, {"why"}, {{1, 2, "p", 3}}, {{4, 5}}, BestCheckpoint{1, 2, 3}};
  EXPECT_THAT(
      testing::EmptyFields(ToProto(RankStatus{{"job", 7, 1}, {}, 2, RankState::kReady, start})),
      ::testing::ElementsAre("cause", "signal", "exit_code", "message", "loadable.create_time"));
  const RankExit exit = {ExitCause::kHung, 9, 8, "m"};
  const v1::RankStatus exited = ToProto(RankStatus{{"job", 7, 1}, exit, 2, RankState::kExited});
  EXPECT_THAT(
      testing::EmptyFields(exited),
      ::testing::ElementsAre("resumed_step", "refused", "loadable", "earlier_starts", "best"));
  EXPECT_EQ(exited.cause(), v1::EXIT_CAUSE_HUNG);
  EXPECT_EQ(exited.state(), v1::RANK_STATE_EXITED);
}

// Both name the causes: "peer_lost" and EXIT_CAUSE_PEER_LOST.
TEST(ConvertTest, CausesAreNumberedAsOnTheWire) {
  for (int i = 1; i < v1::ExitCause_descriptor()->value_count(); ++i) {
    const auto* value = v1::ExitCause_descriptor()->value(i);
    EXPECT_EQ(absl::AsciiStrToUpper(absl::StrCat("exit_cause_", Name(ExitCause(value->number())))),
              value->name());
  }
}

TEST(ConvertTest, EveryFieldOfACheckpointIsSaid) {
  const Report report =
      CheckpointReport{{"job", 2, 0},
                       {9, "p", 1, 0.5, {{2, 9}}, std::string("e"), BestCheckpoint{1, 2, 3}},
                       absl::FromUnixSeconds(3)};
  EXPECT_THAT(testing::EmptyFields(ToProto(Outgoing{1, report}).checkpoint()),
              ::testing::IsEmpty());
  const Notice set = RendezvousSet{{"job", 2, "k", "\xff"}};
  const v1::ConnectRequest said = ToProto(Outgoing{0, set});
  EXPECT_THAT(testing::EmptyFields(said.rendezvous_set()), ::testing::IsEmpty());
  EXPECT_EQ(said.rendezvous_set().value(), "\xff");
}

// A step of a large model over a large batch takes more FLOPs than 64 bits count.
TEST(ConvertTest, FlopsBeyondSixtyFourBitsArrive) {
  for (const double flops : {3e19, 0.0}) {
    StepReport report = {{"job", 1, 0}, {}};
    report.step.model_flops = flops;
    EXPECT_EQ(ToProto(Outgoing{1, Report(report)}).step().model_flops(), flops);
  }
}

TEST(ConvertTest, CollectivesTravelWithTheStep) {
  StepReport report = {{"job", 1, 0}, {}};
  report.step.collectives = {{"all_gather", "data", 3, 4096, 0.5}};
  const v1::StepReport said = ToProto(Outgoing{1, Report(report)}).step();
  ASSERT_EQ(said.collectives_size(), 1);
  EXPECT_EQ(said.collectives(0).op(), "all_gather");
  EXPECT_EQ(said.collectives(0).group(), "data");
  EXPECT_EQ(said.collectives(0).calls(), 3u);
  EXPECT_EQ(said.collectives(0).bytes(), 4096u);
  EXPECT_EQ(said.collectives(0).seconds(), 0.5);
}

TEST(ConvertTest, ADeviceIsAGpuOrAMeasuredCpuRank) {
  Device device = {.index = 1, .model = "cpu", .threads = 2, .peaks = {{"bf16", 2e11, true}}};
  const v1::Device cpu = ToProto(device);
  EXPECT_EQ(cpu.kind(), v1::DEVICE_KIND_CPU);
  EXPECT_TRUE(cpu.peak(0).measured());
  EXPECT_FALSE(cpu.has_gpu());
  device.gpu = Gpu{5, "GPU-8a56", "580.65.06", "9.0"};
  device.peaks[0].measured = false;  // A data sheet's.
  const v1::Device gpu = ToProto(device);
  EXPECT_EQ(gpu.kind(), v1::DEVICE_KIND_CUDA);
  EXPECT_FALSE(gpu.peak(0).measured());
  EXPECT_EQ(gpu.gpu().index(), 5u);
  EXPECT_EQ(gpu.gpu().uuid(), "GPU-8a56");
  EXPECT_EQ(gpu.gpu().driver_version(), "580.65.06");
  EXPECT_EQ(gpu.gpu().compute_capability(), "9.0");
}

TEST(ConvertTest, WhatAGpuToldTravelsWithTheStep) {
  StepReport report = {{"job", 1, 0}, {}};
  const v1::StepRecord none = ToProto(Outgoing{1, Report(report)}).step().record();
  EXPECT_FALSE(none.has_gpu_utilization_ratio());
  report.step.gpu = {.utilization = 0.97,
                     .power_watts = 612.5,
                     .sm_clock_hertz = 1.755e9,
                     .temperature_celsius = 61,
                     .throttle_reasons = {"sw_power_cap"}};
  const v1::StepRecord record = ToProto(Outgoing{1, Report(report)}).step().record();
  EXPECT_EQ(record.gpu_utilization_ratio(), 0.97);
  EXPECT_EQ(record.gpu_power_watts(), 612.5);
  EXPECT_EQ(record.gpu_sm_clock_hertz(), 1.755e9);
  EXPECT_EQ(record.gpu_temperature_celsius(), 61);
  ASSERT_EQ(record.gpu_throttle_reasons_size(), 1);
  EXPECT_EQ(record.gpu_throttle_reasons(0), "sw_power_cap");
}

TEST(ConvertTest, WhatWasLoadedAndRefusedIsSaidWithReady) {
  const StartRecord start = {.step = 40, .refused = {std::string(2000, 'x'), "step-60: \xff"}};
  const v1::RankStatus said = ToProto(RankStatus{{"job", 1, 0}, {}, 0, RankState::kReady, start});
  EXPECT_EQ(said.resumed_step(), 40u);
  ASSERT_EQ(said.refused_size(), 2);
  EXPECT_EQ(said.refused(0).size(), 1024u);
  EXPECT_EQ(said.refused(1), "step-60: ?");

  const Report report =
      CheckpointReport{{"job", 2, 0}, {9, "p", 1, 0.5, {{2, 9}, {1, 8}}}, absl::UnixEpoch()};
  const v1::CheckpointReport checkpoint = ToProto(Outgoing{1, report}).checkpoint();
  ASSERT_EQ(checkpoint.retained_size(), 2);
  EXPECT_EQ(checkpoint.retained(1).epoch(), 1u);
  EXPECT_EQ(checkpoint.retained(1).step(), 8u);
}

TEST(ConvertTest, AnExitsMessageIsCutAtEightKibibytesBetweenCharacters) {
  std::string message = "x";
  while (message.size() < 20'000) message += "\u00e9";  // Two bytes each, at odd positions.
  const v1::RankStatus status =
      ToProto(RankStatus{{"job", 1, 0}, {.message = message}, 0, RankState::kExited});
  EXPECT_EQ(status.message(), message.substr(0, 8191));
}

}  // namespace
}  // namespace trainyard
