// Devices divide the machine; the matrix rate is asked of the trainer once and then remembered.

#include "worker/daemon/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <thread>

#include "common/files.h"
#include "tests/worker/daemon/testing.h"
#include "worker/daemon/environment.h"

namespace trainyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class DevicesTest : public ::testing::Test {
 protected:
  DeviceOptions Options(const std::string& script) {
    DeviceOptions options;
    options.devices = 2;
    options.trainer = directory_.path() + "/trainer";
    options.environment = {"PATH=/usr/bin:/bin"};
    options.cache = directory_.path() + "/measured.json";
    std::ofstream(options.trainer) << "#!/bin/sh\n" << script;
    EXPECT_EQ(::chmod(options.trainer.c_str(), 0755), 0);
    return options;
  }
  std::string calls() { return ReadFile(directory_.path() + "/calls").value_or(""); }

  TemporaryDirectory directory_;
};

TEST_F(DevicesTest, SharesDivideTheMachineAndCarryTheMeasuredRates) {
  const auto devices = CpuDevices(Options(R"(echo '{"f32": 1e9, "bf16": 2e9, "f64": 0}')"));
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 2u);
  EXPECT_EQ((*devices)[1].index, 1u);
  EXPECT_GE((*devices)[0].threads, 1u);
  EXPECT_THAT((*devices)[0].model, HasSubstr("cpu ("));
  EXPECT_GT((*devices)[0].memory_bytes, 0u);
  // A rate of zero is no rate.
  EXPECT_THAT((*devices)[0].peak_flops, ElementsAre(std::pair("bf16", 2e9), std::pair("f32", 1e9)));
}

TEST_F(DevicesTest, TheMeasurementIsMadeOnceForAThreadCount) {
  DeviceOptions options =
      Options("echo \"$@\" >> " + directory_.path() + "/calls\necho '{\"f32\": 1e9}'\n");
  options.devices = 1;
  options.threads_per_device = 1;
  for (int i = 0; i < 3; ++i) {
    const auto devices = CpuDevices(options);
    ASSERT_TRUE(devices.ok()) << devices.status();
    EXPECT_EQ((*devices)[0].peak_flops.at("f32"), 1e9);
  }
  EXPECT_EQ(calls(), "--measure --threads 1\n");
}

TEST_F(DevicesTest, AFailedMeasurementLeavesTheRatesUnknown) {
  for (const char* script : {"exit 3", "echo nonsense", "kill -9 $$"}) {
    const auto devices = CpuDevices(Options(script));
    ASSERT_TRUE(devices.ok()) << devices.status();
    EXPECT_THAT((*devices)[0].peak_flops, IsEmpty()) << script;
  }
}

TEST_F(DevicesTest, CountsBeyondTheMachineAreRefused) {
  DeviceOptions options = Options("exit 1");
  options.devices = 0;
  EXPECT_FALSE(CpuDevices(options).ok());
  options.devices = 1;
  options.threads_per_device = 100'000;
  EXPECT_THAT(std::string(CpuDevices(options).status().message()), HasSubstr("usable cores"));
}

TEST(EnvironmentTest, OnlyTheNamedVariablesPass) {
  const char* const environment[] = {"PATH=/bin", "LD_PRELOAD=x.so", "PATHOLOGY=1",
                                     "NCCL_DEBUG=INFO", nullptr};
  EXPECT_THAT(TrainerEnvironment(environment),
              ElementsAre("PATH=/bin", "NCCL_DEBUG=INFO", "OMP_WAIT_POLICY=passive"));
}

}  // namespace
}  // namespace trainyard
