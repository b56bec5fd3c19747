// Which GPUs a daemon offers, on machines that a fake NVML describes: those that the build's
// kernels run on, with their peaks; every other is refused, and so is a driver that will not do.

#include "worker/daemon/gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/host_memory.h"
#include "tests/testing/fake_nvml/fake_nvml.h"
#include "tests/worker/daemon/testing.h"

namespace trainyard {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class GpusTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::vector<Device>> Devices(const json& machine) {
    SetFakeMachine(directory_.path(), machine);
    return GpuDevices(options_);
  }
  // The error, which must be of this code.
  std::string Refusal(const json& machine, absl::StatusCode code) {
    const absl::Status status = Devices(machine).status();
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  }
  // NVML's indices of those that are offered when CUDA_VISIBLE_DEVICES is this, of four.
  std::vector<uint32_t> Offered(const std::string& visible) {
    options_.visible = visible;
    std::vector<uint32_t> indices;
    for (const Device& device : Devices(FakeMachine(4)).value_or(std::vector<Device>())) {
      EXPECT_EQ(device.index, indices.size());
      indices.push_back(device.gpu->index);
    }
    return indices;
  }

  TemporaryDirectory directory_;
  GpuOptions options_ = {.cuda_version = "13.0.48", .library = FakeNvmlLibrary()};
};

TEST_F(GpusTest, EveryGpuIsADeviceWithWhatIsKnownOfIt) {
  const auto devices = Devices(FakeMachine(8));
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 8u);
  const Device& last = devices->back();
  EXPECT_EQ(last.index, 7u);
  EXPECT_EQ(last.model, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(last.memory_bytes, 85'000'000'000u);  // What the driver reserves is not a rank's.
  EXPECT_EQ(last.host_memory_bytes, HostMemoryBytes() / 8);  // All cores are the daemon's.
  EXPECT_GE(last.threads, 1u);
  const auto peak = [](const std::string& dtype, double flops) {
    return ::testing::AllOf(::testing::Field(&PeakRate::dtype, dtype),
                            ::testing::Field(&PeakRate::flops, flops),
                            ::testing::Field(&PeakRate::measured, false));
  };
  EXPECT_THAT(last.peaks,
              ElementsAre(peak("bf16", 989e12), peak("f32", 67e12), peak("fp8", 1979e12)));
  ASSERT_TRUE(last.gpu.has_value());
  EXPECT_EQ(last.gpu->index, 7u);
  EXPECT_EQ(last.gpu->uuid, "GPU-7a56a4bc-e184-a047-2620-be19fdf913d5");
  EXPECT_EQ(last.gpu->driver_version, "580.65.06");
  EXPECT_EQ(last.gpu->compute_capability, "9.0");
}

TEST_F(GpusTest, OneGpuIsOneDevice) { EXPECT_EQ(Devices(FakeMachine(1))->size(), 1u); }

TEST_F(GpusTest, WithoutAGpuOrADriverThereIsNothingToOffer) {
  EXPECT_EQ(Refusal(FakeMachine(0), absl::StatusCode::kFailedPrecondition),
            "no GPU to offer: NVML has 0");
  json machine = FakeMachine(1);
  machine["init"] = 9;
  EXPECT_THAT(Refusal(machine, absl::StatusCode::kNotFound), HasSubstr("Driver Not Loaded"));
  options_.library = directory_.path() + "/libnvidia-ml.so.1";
  EXPECT_THAT(Refusal(machine, absl::StatusCode::kNotFound),
              AllOf(HasSubstr("no NVIDIA driver"), HasSubstr(options_.library)));
}

TEST_F(GpusTest, ADriverThatIsTooOldIsNamedWithTheOneThatWillDo) {
  json machine = FakeMachine(1);
  machine["driver"] = "550.54.15";
  machine["cuda"] = 12040;
  EXPECT_THAT(Refusal(machine, absl::StatusCode::kFailedPrecondition),
              AllOf(HasSubstr("driver 550.54.15 runs CUDA 12.4 at most"),
                    HasSubstr("CUDA 13.0.48 (580 or newer)")));
  machine["cuda"] = 14020;
  EXPECT_TRUE(Devices(machine).ok());
  machine.erase("cuda");
  EXPECT_THAT(Refusal(machine, absl::StatusCode::kFailedPrecondition), HasSubstr("libcuda.so.1"));
  machine["init"] = 18;
  EXPECT_THAT(Refusal(machine, absl::StatusCode::kInternal), HasSubstr("version mismatch"));
}

TEST_F(GpusTest, ALibraryThatIsNotNvmlIsRefused) {
  options_.library = "libm.so.6";
  EXPECT_THAT(Refusal(FakeMachine(1), absl::StatusCode::kFailedPrecondition),
              HasSubstr("libm.so.6 has no nvmlInit_v2"));
}

TEST_F(GpusTest, ABuildWithoutCudaOffersNone) {
  options_.cuda_version = "none";
  EXPECT_THAT(Refusal(FakeMachine(1), absl::StatusCode::kFailedPrecondition),
              HasSubstr("no kernels for GPUs"));
}

// Bug it must catch: a rank on a GPU whose code the build does not have, or on a slice of one.
TEST_F(GpusTest, ForeignDividedAndLostGpusAreNotOffered) {
  json machine = FakeMachine(5);
  machine["gpus"][0]["name"] = "NVIDIA A100-SXM4-80GB";
  machine["gpus"][0]["capability"] = {8, 0};
  machine["gpus"][1]["mig"] = 1;
  machine["gpus"][2]["error"] = 15;
  machine["gpus"][4]["name"] = "NVIDIA B200";
  machine["gpus"][4]["capability"] = {10, 0};
  const auto devices = Devices(machine);
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 1u);
  EXPECT_EQ(devices->front().index, 0u);
  EXPECT_EQ(devices->front().gpu->index, 3u);
  machine["gpus"].erase(3);
  EXPECT_THAT(
      Refusal(machine, absl::StatusCode::kFailedPrecondition),
      AllOf(HasSubstr("NVML has 4"), HasSubstr("A100-SXM4-80GB: its compute capability is 8.0"),
            HasSubstr("kernels are for 9.0"), HasSubstr("MIG instances"),
            HasSubstr("GPU 2: NVML: name: GPU is lost")));
}

// Bug it must catch: a peak of another model, hence an MFU that means nothing.
TEST_F(GpusTest, AModelThatIsNotKnownHasNoPeak) {
  json machine = FakeMachine(1);
  machine["gpus"][0]["name"] = "NVIDIA H100 80GB HBM9";
  EXPECT_THAT(Devices(machine)->front().peaks, IsEmpty());
}

// Bug it must catch: two daemons that a scheduler gave half a machine each, both on GPU 0.
TEST_F(GpusTest, OfVisibleDevicesAloneInTheirOrder) {
  EXPECT_THAT(Offered("2,0"), ElementsAre(2, 0));
  EXPECT_THAT(Offered("GPU-3a56a4bc, 1"), ElementsAre(3, 1));
  EXPECT_THAT(Offered("1,-1,2"), ElementsAre(1));
  EXPECT_THAT(Offered("1,9,2"), ElementsAre(1));
  for (const char* none : {"", "NoDevFiles", "-1", "GPU-", "MIG-3a56a4bc"}) {
    EXPECT_THAT(Offered(none), IsEmpty()) << none;
  }
  EXPECT_EQ(Refusal(FakeMachine(4), absl::StatusCode::kFailedPrecondition),
            "no GPU to offer: NVML has 4, CUDA_VISIBLE_DEVICES leaves 0");
}

// Bug it must catch: a worker that never starts, for a driver that does not answer.
TEST_F(GpusTest, OfANvmlThatDoesNotAnswerIsSaidSo) {
  options_.patience = absl::Milliseconds(20);
  json machine = FakeMachine(1);
  machine["stuck"] = true;
  EXPECT_THAT(Refusal(machine, absl::StatusCode::kDeadlineExceeded),
              HasSubstr("NVML does not answer"));
  options_.patience = absl::Minutes(1);
  EXPECT_TRUE(Devices(FakeMachine(1)).ok());
}

TEST_F(GpusTest, TheirRanksShareTheCores) {
  options_.cores = 1;
  EXPECT_EQ(Devices(FakeMachine(8))->front().threads, 1u);
  options_.cores = 1e6;
  EXPECT_THAT(Refusal(FakeMachine(1), absl::StatusCode::kInvalidArgument),
              HasSubstr("usable cores"));
}

}  // namespace
}  // namespace trainyard
