// Devices divide the machine; the trainer measures the matrix rate, and the best one is remembered.

#include "worker/daemon/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>

#include <fstream>
#include <map>
#include <utility>

#include "common/files.h"
#include "tests/worker/daemon/testing.h"
#include "worker/daemon/environment.h"

namespace trainyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::map<std::string, double> PeaksOf(const Device& device) {
  std::map<std::string, double> peaks;
  for (const PeakRate& peak : device.peaks) {
    EXPECT_TRUE(peak.measured);
    peaks[peak.dtype] = peak.flops;
  }
  return peaks;
}

class DevicesTest : public ::testing::Test {
 protected:
  DeviceOptions Options(const std::string& script) {
    DeviceOptions options;
    options.devices = 2;
    options.trainer = directory_.path() + "/trainer";
    options.environment = {"PATH=/usr/bin:/bin"};
    options.best_rates = directory_.path() + "/measured.json";
    std::ofstream(options.trainer) << "#!/bin/sh\n" << script;
    EXPECT_EQ(::chmod(options.trainer.c_str(), 0755), 0);
    return options;
  }
  // Of a core, that one of two ranks has.
  static double Share() {
    cpu_set_t usable;
    EXPECT_EQ(::sched_getaffinity(0, sizeof(usable), &usable), 0);
    return CPU_COUNT(&usable) == 1 ? 0.5 : 1;
  }
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
  EXPECT_THAT(PeaksOf((*devices)[0]),
              ElementsAre(std::pair("bf16", 2e9 * Share()), std::pair("f32", 1e9 * Share())));
}

// Bug it must catch: a first start on a busy machine whose low rate stays, so that MFU passes 1.
TEST_F(DevicesTest, EveryStartMeasuresAndTheBestRateOfEachDtypeHolds) {
  const auto rates = [&](const std::string& measured) {
    const auto devices = CpuDevices(Options("echo '" + measured + "'"));
    EXPECT_TRUE(devices.ok()) << devices.status();
    auto found = PeaksOf((*devices)[0]);
    for (auto& [dtype, rate] : found) rate /= Share();
    return found;
  };
  EXPECT_THAT(rates(R"({"f32": 1e9, "bf16": 4e9})"),
              ElementsAre(std::pair("bf16", 4e9), std::pair("f32", 1e9)));
  EXPECT_THAT(rates(R"({"f32": 3e9, "bf16": 2e9})"),
              ElementsAre(std::pair("bf16", 4e9), std::pair("f32", 3e9)));
  EXPECT_THAT(rates("nonsense"), ElementsAre(std::pair("bf16", 4e9), std::pair("f32", 3e9)));
}

// Bug it must catch: a rate of all cores that stands for one of them.
TEST_F(DevicesTest, AnotherShareOfTheCoresHasARateOfItsOwn) {
  DeviceOptions options = Options(R"(echo "{\"f32\": $3e9}")");  // --measure --threads N.
  options.devices = 1;
  for (const double cores : {0, 1, 0}) {
    options.cores = cores;
    const Device device = CpuDevices(options)->front();
    EXPECT_EQ(PeaksOf(device).at("f32"), 1e9 * device.threads);
  }
}

TEST(Processors, AreDividedWithoutRestAndNeighboursStayTogether) {
  EXPECT_THAT(DivideProcessors({0, 1, 4, 5, 8}, 2),
              ElementsAre(ElementsAre(0, 1), ElementsAre(4, 5, 8)));
  EXPECT_THAT(DivideProcessors({3}, 1), ElementsAre(ElementsAre(3)));
}

// Bug it must catch: ranks bound to one processor while another is idle.
TEST(Processors, AreNobodysAloneWhereTheyAreTooFew) {
  EXPECT_THAT(DivideProcessors({0, 1}, 3), ElementsAre(IsEmpty(), IsEmpty(), IsEmpty()));
}

// Bug it must catch: two daemons of a machine that bind their ranks to the same processors.
TEST_F(DevicesTest, ProcessorsAreBoundOnlyByADaemonThatHasThemAll) {
  DeviceOptions options = Options("exit 1");
  options.devices = 1;
  const Device whole = CpuDevices(options)->front();
  EXPECT_EQ(whole.processors.size(), whole.threads);
  options.cores = 0.5;
  EXPECT_THAT(CpuDevices(options)->front().processors, IsEmpty());
}

// Bug it must catch: daemons that share a machine by --cores, each with all of its memory.
TEST_F(DevicesTest, MemoryIsSharedAsTheCoresAre) {
  DeviceOptions options = Options("exit 1");
  options.devices = 1;
  const Device machine = CpuDevices(options)->front();
  const double usable = machine.threads, whole = double(machine.memory_bytes);
  const auto memory = [&](uint32_t devices, double cores) {
    options.devices = devices;
    options.cores = cores;
    return double(CpuDevices(options)->front().memory_bytes);
  };
  EXPECT_EQ(memory(1, usable), whole);
  EXPECT_NEAR(memory(1, usable / 4), whole / 4, 1);
  EXPECT_NEAR(memory(2, usable / 4), whole / 8, 1);
}

TEST(ShareOfCores, IsWholeThreadsAndWhatTheyGetOfACore) {
  const auto expect = [](double cores, uint32_t devices, uint32_t threads, double of_threads) {
    const CpuShare share = ShareOf(cores, devices);
    EXPECT_EQ(share.threads, threads) << devices << " on " << cores;
    EXPECT_EQ(share.of_threads, of_threads) << devices << " on " << cores;
  };
  expect(8, 4, 2, 1);
  expect(7, 2, 3, 1);  // The seventh core stays free.
  expect(2, 2, 1, 1);
  expect(2, 8, 1, 0.25);
  expect(0.5, 1, 1, 0.5);  // One of four workers on two cores.
}

// Bug it must catch: as many peaks as ranks on a machine with fewer cores, so that MFU is too low.
TEST_F(DevicesTest, RanksThatShareACoreShareItsRate) {
  DeviceOptions options = Options(R"(echo '{"f32": 8e9}')");
  options.cores = 1;
  options.devices = 4;
  for (int start = 0; start < 2; ++start) {  // What is kept of the first is not divided again.
    const Device device = CpuDevices(options)->front();
    EXPECT_EQ(device.threads, 1u);
    EXPECT_EQ(PeaksOf(device).at("f32"), 2e9);
    EXPECT_THAT(device.model, HasSubstr("cpu (1 thread on 0.25 cores, "));
  }
}

TEST_F(DevicesTest, AFileThatIsNotOfThisFormIsReplaced) {
  const DeviceOptions options = Options(R"(echo '{"f32": 1e9}')");
  for (const char* text : {"", "{\"version\": 1, \"ra", "[]", "{\"version\": 2, \"rates\": {}}",
                           "{\"version\": 1, \"rates\": 7}"}) {
    ASSERT_TRUE(WriteFileAtomic(options.best_rates, text).ok());
    EXPECT_THAT(PeaksOf((*CpuDevices(options))[0]), ElementsAre(std::pair("f32", 1e9 * Share())))
        << text;
    EXPECT_THAT(ReadFile(options.best_rates).value_or(""), HasSubstr("cores\": {")) << text;
  }
}

TEST_F(DevicesTest, AFailedMeasurementLeavesTheRatesUnknown) {
  for (const char* script : {"exit 3", "echo nonsense", "kill -9 $$"}) {
    const auto devices = CpuDevices(Options(script));
    ASSERT_TRUE(devices.ok()) << devices.status();
    EXPECT_THAT((*devices)[0].peaks, IsEmpty()) << script;
  }
}

TEST_F(DevicesTest, CountsBeyondTheMachineAreRefused) {
  DeviceOptions options = Options("exit 1");
  options.devices = 0;
  EXPECT_FALSE(CpuDevices(options).ok());
  options.devices = 1;
  options.cores = 100'000;
  EXPECT_THAT(std::string(CpuDevices(options).status().message()), HasSubstr("usable cores"));
}

TEST(EnvironmentTest, OnlyTheNamedVariablesPass) {
  const char* const environment[] = {"PATH=/bin",       "LD_PRELOAD=x.so",          "PATHOLOGY=1",
                                     "NCCL_DEBUG=INFO", "CUDA_VISIBLE_DEVICES=0,1", nullptr};
  EXPECT_THAT(TrainerEnvironment(environment),
              ElementsAre("NCCL_DEBUG=INFO", "OMP_WAIT_POLICY=passive"));
}

// Bug it must catch: `export LD_LIBRARY_PATH=/opt/lib:$LD_LIBRARY_PATH` where there was none, and
// the loader looks for libraries in the directory that jobs write.
TEST(EnvironmentTest, LibrariesComeFromAbsolutePathsAlone) {
  const auto passed = [](const char* entry) {
    const char* const environment[] = {entry, nullptr};
    return TrainerEnvironment(environment).front();
  };
  EXPECT_EQ(passed("LD_LIBRARY_PATH=/opt/lib:"), "LD_LIBRARY_PATH=/opt/lib");
  EXPECT_EQ(passed("LD_LIBRARY_PATH=:lib:/a;;/b:.:"), "LD_LIBRARY_PATH=/a:/b");
  EXPECT_EQ(passed("LD_LIBRARY_PATH=."), "LD_LIBRARY_PATH=");
}

// Bug it must catch: every rank of a machine on its first GPU.
TEST(EnvironmentTest, ARankSeesItsOwnGpuAlone) {
  const Device cpu = {.index = 1, .threads = 3};
  EXPECT_THAT(DeviceEnvironment(cpu), ElementsAre("OMP_NUM_THREADS=3", "CUDA_VISIBLE_DEVICES="));
  const Device gpu = {.index = 1,
                      .threads = 2,
                      .gpu = Gpu{.index = 5, .uuid = "GPU-8a56", .driver_version = "580"}};
  EXPECT_THAT(DeviceEnvironment(gpu),
              ElementsAre("OMP_NUM_THREADS=2", "CUDA_VISIBLE_DEVICES=GPU-8a56"));
}

}  // namespace
}  // namespace trainyard
