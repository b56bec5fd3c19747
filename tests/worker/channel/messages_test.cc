// Proves that every message survives the trip through its line, and that a malformed line is named.

#include "worker/channel/messages.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace trainyard::channel {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

template <typename T>
T RoundTrip(const T& message, uint64_t sequence = 0) {
  const absl::StatusOr<Envelope> envelope = Decode(Encode({message, sequence}));
  EXPECT_TRUE(envelope.ok()) << envelope.status();
  EXPECT_EQ(envelope->sequence, sequence);
  return std::get<T>(envelope->message);
}

Step FullStep() {
  Step step;
  step.step = uint64_t{1} << 60, step.loss = 0.1, step.grad_norm = 1e-300;
  step.learning_rate = 3e-4, step.tokens = 4096, step.seconds = 1.0 / 3;
  step.phases = {1, 2, 3, 4, 5, 6, 7, 8}, step.peak_flops = 3e15, step.mfu = 0.4,
  step.model_flops_per_second_per_device = 1e14, step.validation_loss = 2.5;
  step.load_balancing_loss = 1.25, step.skipped = true, step.model_flops = 1e21,
  step.memory_bytes = 1, step.time = 1.7e9;
  step.memory_planned_bytes = 2;
  step.collectives = {{"all_gather", "data", 3, uint64_t{1} << 60, 0.1}, {"send", "pipeline"}};
  step.gpu = {.utilization = 0.97,
              .memory_used_bytes = 8e10,
              .sm_clock_hertz = 1.755e9,
              .throttle_reasons = {"sw_power_cap"}};
  step.generated = {{"\"a", "b\n\xe2\x82\xac"}, {"", ""}};
  return step;
}

TEST(Messages, StepSurvivesWithEveryBitOfItsNumbers) {
  const Step want = FullStep(), got = RoundTrip(want, 7);
  EXPECT_EQ(got.step, want.step);
  EXPECT_EQ(got.loss, want.loss);
  EXPECT_EQ(got.grad_norm, want.grad_norm);
  EXPECT_EQ(got.seconds, want.seconds);
  EXPECT_EQ(got.phases.checkpoint, want.phases.checkpoint);
  EXPECT_EQ(got.phases.validation, want.phases.validation);
  EXPECT_EQ(got.peak_flops, want.peak_flops);
  EXPECT_EQ(got.mfu, want.mfu);
  EXPECT_EQ(got.model_flops_per_second_per_device, want.model_flops_per_second_per_device);
  EXPECT_EQ(got.validation_loss, want.validation_loss);
  EXPECT_EQ(got.load_balancing_loss, want.load_balancing_loss);
  EXPECT_EQ(got.skipped, want.skipped);
  EXPECT_EQ(got.model_flops, want.model_flops);
  EXPECT_EQ(got.memory_planned_bytes, want.memory_planned_bytes);
  EXPECT_EQ(Encode({got}), Encode({want}));
  EXPECT_EQ(got.generated, want.generated);
  ASSERT_EQ(got.collectives.size(), 2u);
  EXPECT_EQ(got.collectives[0].bytes, want.collectives[0].bytes);
  EXPECT_EQ(got.collectives[1].group, "pipeline");
  EXPECT_EQ(got.gpu.utilization, 0.97);
  EXPECT_EQ(got.gpu.memory_used_bytes, 8e10);
  EXPECT_FALSE(got.gpu.power_watts.has_value());
  EXPECT_EQ(got.gpu.sm_clock_hertz, 1.755e9);
  EXPECT_EQ(got.gpu.throttle_reasons, want.gpu.throttle_reasons);
}

// Spooled steps outlive an upgrade.
TEST(Messages, AReadingOfAGpuHasTheNamesOfTheLastRelease) {
  Step step;
  step.gpu = {.utilization = 0.5,
              .memory_used_bytes = 1,
              .power_watts = 2,
              .sm_clock_hertz = 3,
              .temperature_celsius = 4,
              .throttle_reasons = {"sw_power_cap"}};
  const auto json = nlohmann::json::parse(Encode({step}));
  EXPECT_EQ(json["gpu"], nlohmann::json({{"utilization", 0.5},
                                         {"memory_used_bytes", 1},
                                         {"power_watts", 2},
                                         {"sm_clock_hertz", 3},
                                         {"temperature_celsius", 4},
                                         {"throttle_reasons", {"sw_power_cap"}}}));
  EXPECT_THAT(Encode({Step()}), Not(HasSubstr("gpu")));
}

// As the trainers of the last release write it: their ranks and histories outlive an upgrade.
TEST(Messages, AStepMayLackTheSecondsOfItsValidation) {
  std::string line = Encode({FullStep()});
  const std::string phase = R"("validation":8.0,)";
  const size_t begin = line.find(phase);
  ASSERT_NE(begin, line.npos) << line;
  line.erase(begin, phase.size());
  const absl::StatusOr<Envelope> envelope = Decode(line);
  ASSERT_TRUE(envelope.ok()) << envelope.status() << line;
  EXPECT_EQ(std::get<Step>(envelope->message).phases.validation, 0);
  EXPECT_EQ(std::get<Step>(envelope->message).phases.checkpoint, 7);
}

// As the spool of a daemon of the version before holds it.
TEST(Messages, AStepMayLackItsCollectives) {
  std::string line = Encode({FullStep()});
  const size_t begin = line.find("\"collectives\":["), end = line.find(']', begin);
  line.erase(begin, end + 2 - begin);
  const absl::StatusOr<Envelope> envelope = Decode(line);
  ASSERT_TRUE(envelope.ok()) << envelope.status() << line;
  EXPECT_TRUE(std::get<Step>(envelope->message).collectives.empty());
  line.insert(begin, R"("collectives":[{"op":"send"}],)");
  EXPECT_THAT(std::string(Decode(line).status().message()),
              HasSubstr("step.collectives[0].group: wanted"));
}

TEST(Messages, NotFiniteLossTravelsAsNullAndAbsentFieldsStayAbsent) {
  Step step;
  step.loss = std::numeric_limits<double>::infinity();
  EXPECT_THAT(Encode({step}), HasSubstr("\"loss\":null"));
  EXPECT_TRUE(std::isnan(RoundTrip(step).loss));
  EXPECT_FALSE(RoundTrip(step).mfu.has_value());
  EXPECT_FALSE(RoundTrip(step).validation_loss.has_value());
  EXPECT_FALSE(RoundTrip(step).load_balancing_loss.has_value());
  EXPECT_EQ(RoundTrip(step).gpu, GpuReading());
}

TEST(Messages, RendezvousValuesMayHoldAnyBytes) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += char(i);
  EXPECT_EQ(RoundTrip(Set{"gloo/0", bytes}, 1).value, bytes);
  EXPECT_EQ(RoundTrip(Value{"gloo/0", bytes}).value, bytes);
  EXPECT_EQ(RoundTrip(Get{"gloo/0"}).key, "gloo/0");
}

TEST(Messages, ListsTravelInOrder) {
  const Ready ready = RoundTrip(Ready{40, {"step-80: torn", "step-60: gone"}}, 1);
  EXPECT_EQ(ready.step, 40u);
  EXPECT_THAT(ready.refused, ::testing::ElementsAre("step-80: torn", "step-60: gone"));
  const Checkpoint checkpoint = RoundTrip(Checkpoint{9, "p", 1, 0.5, {{2, 9}, {1, 8}}}, 2);
  ASSERT_EQ(checkpoint.retained.size(), 2u);
  EXPECT_EQ(checkpoint.retained[0].epoch, 2u);
  EXPECT_EQ(checkpoint.retained[1].step, 8u);
  for (const char* wrong : {"1", "[1]", "[[1]]", "[[1,-2]]", "[[1,2,3]]"}) {
    const std::string line = absl::StrCat(
        R"({"type":"checkpoint","step":1,"path":"p","size_bytes":1,"seconds":1,"retained":)", wrong,
        "}");
    EXPECT_THAT(std::string(Decode(line).status().message()), HasSubstr("checkpoint.retained"))
        << wrong;
  }
}

TEST(Messages, TheBestCheckpointTravelsIfThereIsOne) {
  const BestCheckpoint best = {2, 8, 1.25};
  EXPECT_EQ(RoundTrip(Ready{.step = 8, .best = best}, 1).best, best);
  EXPECT_EQ(RoundTrip(Checkpoint{.step = 9, .path = "p", .best = best}, 1).best, best);
  EXPECT_FALSE(RoundTrip(Ready{.step = 8}, 1).best);
  EXPECT_FALSE(RoundTrip(Checkpoint{.step = 9, .path = "p"}, 1).best);
}

TEST(Messages, HelloNamesJobEpochRankAndProcess) {
  const Hello hello = RoundTrip(Hello{"j-1", 3, 2, 99});
  EXPECT_EQ(hello.job_id, "j-1");
  EXPECT_EQ(hello.epoch, 3u);
  EXPECT_EQ(hello.rank, 2u);
  EXPECT_EQ(hello.pid, 99);
}

TEST(Messages, ProgressNamesPhaseStepAndCount) {
  const Progress progress = RoundTrip(Progress{"data", 12, 345, true});
  EXPECT_EQ(progress.phase, "data");
  EXPECT_EQ(progress.step, 12u);
  EXPECT_EQ(progress.count, 345u);
  EXPECT_TRUE(progress.waiting);
}

TEST(Messages, OtherVersionIsRefusedWithBothNumbers) {
  const auto status =
      Decode(R"({"type":"hello","version":2,"job_id":"j","epoch":1,"rank":0,"pid":1})").status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("wanted version 1, found 2"));
}

TEST(Messages, NewerTypesAndFieldsAreIgnored) {
  EXPECT_TRUE(std::holds_alternative<Unknown>(Decode(R"({"type":"sing"})")->message));
  EXPECT_TRUE(
      std::holds_alternative<Ack>(Decode(R"({"type":"ack","up_to":1,"mood":[1]})")->message));
}

TEST(Messages, MalformedLineNamesTheField) {
  EXPECT_FALSE(Decode("").ok());
  EXPECT_FALSE(Decode("[1]").ok());
  EXPECT_FALSE(Decode(R"({"type":1})").ok());
  EXPECT_THAT(std::string(Decode(R"({"type":"get"})").status().message()),
              HasSubstr("get.key: wanted a value, found none"));
  EXPECT_THAT(std::string(Decode(R"({"type":"set","key":"k","value":"!"})").status().message()),
              HasSubstr("base64"));
  EXPECT_THAT(std::string(Decode(R"({"type":"checkpoint","step":-1})").status().message()),
              HasSubstr("checkpoint.step: wanted"));
}

}  // namespace
}  // namespace trainyard::channel
