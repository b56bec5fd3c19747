// How GPUs fare, on a machine that a fake NVML describes: what the metrics page and the step
// records get of it, while all is well and once a GPU is lost.

#include "worker/daemon/gpu_telemetry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/match.h"
#include "prometheus/text_serializer.h"
#include "tests/testing/fake_nvml/fake_nvml.h"
#include "tests/worker/daemon/testing.h"
#include "worker/daemon/gpus.h"

namespace trainyard {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class GpuTelemetryTest : public ::testing::Test {
 protected:
  GpuTelemetryTest() { SetFakeMachine(directory_.path(), machine_); }

  void Start(absl::Duration interval = absl::Milliseconds(5)) {
    auto gpus = GpuDevices({.cuda_version = "13.0.48", .library = FakeNvmlLibrary()});
    auto nvml = Nvml::Open(FakeNvmlLibrary(), "13.0.48");
    ASSERT_TRUE(gpus.ok() && nvml.ok()) << gpus.status() << nvml.status();
    telemetry_.emplace(*std::move(nvml), *std::move(gpus), metrics_, interval);
  }
  // A daemon that is told of the GPUs, and what it says.
  void StartDaemon() {
    DaemonOptions options = TestOptions(directory_.path());
    options.gpus = &*telemetry_;
    auto daemon = Daemon::Create(options, worker_metrics_);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    daemon_->Connected();
    heard_.emplace(daemon_->outbox());
  }
  void Change(const std::function<void(json&)>& change) {
    change(machine_);
    SetFakeMachine(directory_.path(), machine_);
  }
  std::string Page() { return prometheus::TextSerializer().Serialize(registry_.Collect()); }
  // Of the first GPU; the labels stand in the order of the alphabet.
  bool Shows(const std::string& name, const std::string& value, const std::string& more = "") {
    return absl::StrContains(Page(), "\ntrainyard_gpu_" + name +
                                         "{UUID=\"GPU-0a56a4bc-e184-a047-2620-be19fdf913d5\","
                                         "gpu=\"0\"" +
                                         more + "} " + value + "\n");
  }

  TemporaryDirectory directory_;
  json machine_ = FakeMachine(2);
  prometheus::Registry registry_;
  GpuMetrics metrics_{registry_};
  std::optional<GpuTelemetry> telemetry_;
  WorkerMetrics worker_metrics_{"host"};
  std::unique_ptr<Daemon> daemon_;
  std::optional<Listener> heard_;
};

TEST_F(GpuTelemetryTest, EveryGpuIsOnThePageWhichPromtoolAccepts) {
  Change([](json& machine) { machine["xids"] = {{{"gpu", 1}, {"xid", 13}}}; });
  Start();
  ASSERT_TRUE(WaitFor([&] { return absl::StrContains(Page(), "xid=\"13\""); }));
  EXPECT_TRUE(Shows("utilization_ratio", "0.97"));
  EXPECT_TRUE(Shows("memory_used_bytes", "1000000000"));
  EXPECT_TRUE(Shows("memory_bytes", "85000000000"));
  EXPECT_TRUE(Shows("power_watts", "612.5"));
  EXPECT_TRUE(Shows("sm_clock_hertz", "1755000000"));
  EXPECT_TRUE(Shows("temperature_celsius", "61"));
  EXPECT_TRUE(Shows("throttled", "1", ",reason=\"sw_power_cap\""));
  EXPECT_TRUE(Shows("throttled", "0", ",reason=\"hw_thermal_slowdown\""));
  EXPECT_TRUE(Shows("lost", "0"));
  EXPECT_THAT(Page(), HasSubstr("gpu=\"1\",xid=\"13\"} 1\n"));
  const std::string file = directory_.path() + "/page";
  std::ofstream(file) << Page();
  EXPECT_EQ(std::system(("promtool check metrics < " + file).c_str()), 0) << Page();
}

// Bug it must catch: a bit of NVML's under its neighbour's name.
TEST_F(GpuTelemetryTest, ThrottleReasonsAreNvmlsBits) {
  const auto nvml = Nvml::Open(FakeNvmlLibrary(), "13.0.48");
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  const auto reasons = [&](uint64_t bits) {
    Change([&](json& machine) { machine["gpus"][0]["clock_event_reasons"] = bits; });
    return (*nvml)->Read(0)->throttle_reasons;
  };
  EXPECT_THAT(reasons(0x1), ElementsAre());  // Idle.
  EXPECT_THAT(reasons(0x1fe), ElementsAre("applications_clocks_setting", "sw_power_cap",
                                          "hw_slowdown", "sync_boost", "sw_thermal_slowdown",
                                          "hw_thermal_slowdown", "hw_power_brake_slowdown"));
  EXPECT_THAT(reasons(0x40), ElementsAre("hw_thermal_slowdown"));
}

// Bug it must catch: the last power of a GPU that is no more, for ever.
TEST_F(GpuTelemetryTest, OfALostGpuNothingIsSaidButThat) {
  Start();
  ASSERT_TRUE(WaitFor([&] { return Shows("power_watts", "612.5"); }));
  EXPECT_TRUE(WaitFor([&] { return telemetry_->Latest(0).has_value(); }));
  Change([](json& machine) {
    machine["gpus"][0]["error"] = 15;
    machine["xids"] = {{{"gpu", 0}, {"xid", 79}}};
  });
  ASSERT_TRUE(WaitFor([&] { return Shows("xid_errors_total", "1", ",xid=\"79\""); }));
  ASSERT_TRUE(WaitFor([&] { return Shows("lost", "1"); }));
  EXPECT_FALSE(Shows("power_watts", "612.5"));
  EXPECT_FALSE(Shows("throttled", "1", ",reason=\"sw_power_cap\""));
  EXPECT_THAT(Page(), HasSubstr("last_reading_timestamp_seconds{UUID=\"GPU-0a56a4bc"));
  EXPECT_FALSE(telemetry_->Latest(0).has_value());
  // Its neighbour is well, also where a busy machine lets readings grow stale.
  EXPECT_TRUE(WaitFor([&] { return telemetry_->Latest(1).has_value(); }));
  Change([](json& machine) { machine["gpus"][0].erase("error"); });
  EXPECT_TRUE(WaitFor([&] { return Shows("lost", "0") && Shows("power_watts", "612.5"); }));
}

// Bug it must catch: the power of minutes ago as if it were of now.
TEST_F(GpuTelemetryTest, WhileNvmlHangsItsLastReadingGrowsStale) {
  Start();
  ASSERT_TRUE(WaitFor([&] { return telemetry_->Latest(0).has_value(); }));
  Change([](json& machine) { machine["stuck"] = true; });
  EXPECT_TRUE(WaitFor([&] { return !telemetry_->Latest(0).has_value(); }));
  Change([](json& machine) { machine.erase("stuck"); });  // The destructor waits for it, too.
  EXPECT_TRUE(WaitFor([&] { return telemetry_->Latest(0).has_value(); }));
}

TEST_F(GpuTelemetryTest, WhatAGpuDoesNotTellIsAbsent) {
  Change([](json& machine) { machine["gpus"][0].erase("power"); });
  Start();
  std::optional<GpuReading> reading;
  ASSERT_TRUE(WaitFor([&] { return (reading = telemetry_->Latest(0)).has_value(); }));
  EXPECT_FALSE(reading->power_watts.has_value());
  EXPECT_EQ(reading->sm_clock_hertz, 1.755e9);
  EXPECT_THAT(Page(), Not(HasSubstr("power_watts{UUID=\"GPU-0a56a4bc")));
  EXPECT_FALSE(telemetry_->Latest(7).has_value());
}

TEST_F(GpuTelemetryTest, AStepCarriesWhatTheGpuOfItsRankTold) {
  Change([](json& machine) { machine["gpus"][1]["power"] = 250'000; });
  Start(absl::Hours(1));  // One reading, which stays fresh until the step.
  ASSERT_TRUE(WaitFor([&] { return telemetry_->Latest(1).has_value(); }));
  ASSERT_NO_FATAL_FAILURE(StartDaemon());
  StartOrder order = Order("job", 1, {"ready", "step:1", "flush", "report:completed:"});
  order.ranks = {{0, 1}};
  daemon_->StartRanks(order);
  ASSERT_TRUE(heard_->AwaitSteps(1));
  EXPECT_EQ(heard_->steps()[0].step.gpu.power_watts, 250);
  EXPECT_TRUE(heard_->Await({"job", 1, 0}, RankState::kExited));
}

// Between two rounds, and of the rank on that GPU alone.
TEST_F(GpuTelemetryTest, ARankThatDiedIsToldWithTheXidOfItsGpu) {
  Start(absl::Hours(1));
  ASSERT_TRUE(WaitFor([&] { return telemetry_->HasRead(1); }));
  ASSERT_NO_FATAL_FAILURE(StartDaemon());
  Change([](json& machine) { machine["xids"] = {{{"gpu", 1}, {"xid", 79}}}; });
  int jobs = 0;
  const auto ends = [&](uint32_t rank, const std::string& report) {
    StartOrder order = Order(absl::StrCat("job-", ++jobs), 1, {report});
    order.ranks = {{rank, rank}};
    order.world = 2;
    daemon_->StartRanks(order);
    const auto exited = heard_->Await({order.job_id, 1, rank}, RankState::kExited);
    return exited ? exited->message : "";
  };
  EXPECT_THAT(ends(1, "report:device_error:broken"),
              ::testing::MatchesRegex("broken; XID 79 at 20[0-9-]+T[0-9:]+Z"));
  EXPECT_EQ(ends(1, "report:device_error:broken"), "broken") << "blamed on one that came later";
  EXPECT_EQ(ends(0, "report:device_error:broken"), "broken");
  EXPECT_EQ(ends(1, "report:bad_input:broken"), "broken");
}

}  // namespace
}  // namespace trainyard
