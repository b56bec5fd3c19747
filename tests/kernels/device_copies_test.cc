// Proves that the tests of kernels see a kernel that reads or writes beside a tensor, or writes
// to one that it may only read, and that tensors which overlap on the host overlap on the device.

#include "tests/kernels/device_copies.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/device/step_state.h"
#include "kernels/device/tensor.h"
#include "tests/kernels/call.h"

namespace trainyard::testing {
namespace {

// Fields of each kind, with gaps between some.
struct Args {
  bool first = false;
  ConstTensor whole;
  Write write = Write::kAdd;
  Tensor part;
  bool last = false;
  StepState* state = nullptr;
  Tensor absent = {};
};

class DeviceCopiesTest : public ::testing::Test {
 protected:
  // `kernel` gets the copies.
  void Run(absl::FunctionRef<void(const Args&)> kernel) {
    const Args args{.whole = {values_.data(), DType::kF32, {int64_t(values_.size())}},
                    .part = Tensor{{&values_[3], DType::kF32, {2}}},
                    .state = &state_};
    RunKernel<Args>(exec_, args, kernel);
  }
  float Read(const void* device) {
    float value = 0;
    TestedBackend().CopyToHost(exec_, &value, device, sizeof(value));
    return value;
  }
  void Write(const void* device, float value) {
    TestedBackend().CopyToDevice(exec_, const_cast<void*>(device), &value, sizeof(value));
  }
  static const float* Whole(const Args& args) { return args.whole.as<float>(); }

  Exec exec_ = TestedBackend().NewExec(1);
  std::vector<float> values_ = {0, 1, 2, 3, 4, 5};
  StepState state_{.step = 7};
};

TEST_F(DeviceCopiesTest, KeepPlacesAndComeBack) {
  Run([&](const Args& args) {
    EXPECT_NE(Whole(args), values_.data());
    EXPECT_EQ(args.part.data, Whole(args) + 3);
    EXPECT_EQ(uintptr_t(Whole(args)) % 256, uintptr_t(values_.data()) % 256);
    EXPECT_EQ(args.absent.data, nullptr);
    EXPECT_EQ(Read(args.part.data), 3);
    Write(args.part.data, 30);
    EXPECT_EQ(Read(Whole(args) + 3), 30);
    const StepState state{.step = 8};
    TestedBackend().CopyToDevice(exec_, args.state, &state, sizeof(state));
  });
  EXPECT_EQ(values_, (std::vector<float>{0, 1, 2, 30, 4, 5}));
  EXPECT_EQ(state_.step, 8);
}

TEST_F(DeviceCopiesTest, ShowWhoWritesBeside) {
  constexpr float kOther = 1 / 3.0f;  // Differs from guard bytes in each byte.
  EXPECT_NONFATAL_FAILURE(Run([&](const Args& args) { Write(Whole(args) + 6, kOther); }),
                          "changed 4 bytes outside of the 24 bytes of field 2 of its arguments, "
                          "at offsets from 24 to 27");
  EXPECT_NONFATAL_FAILURE(Run([&](const Args& args) { Write(Whole(args) - 1, kOther); }),
                          "at offsets from -4 to -1");
}

// Arithmetic keeps a NaN, and may keep its bits.
TEST_F(DeviceCopiesTest, ShowWhoWritesBesideWhatTheyReadThere) {
  EXPECT_NONFATAL_FAILURE(
      Run([&](const Args& args) { Write(Whole(args) + 6, Read(Whole(args) + 6) + 1); }),
      "outside of the 24 bytes of field 2");
  EXPECT_NONFATAL_FAILURE(
      Run([&](const Args& args) { Write(Whole(args) + 6, Read(args.state + 1)); }),
      "outside of the 24 bytes of field 2");
}

TEST_F(DeviceCopiesTest, ShowWhoWritesWhatIsConst) {
  EXPECT_NONFATAL_FAILURE(Run([&](const Args& args) { Write(Whole(args) + 2, 20); }),
                          "wrote to memory that field 2 of its arguments declares as const");
  EXPECT_EQ(values_[2], 2);
}

TEST_F(DeviceCopiesTest, GiveNanToWhoReadsBeside) {
  Run([&](const Args& args) {
    EXPECT_TRUE(std::isnan(Read(Whole(args) - 1)) && std::isnan(Read(Whole(args) + 6)));
  });
}

}  // namespace
}  // namespace trainyard::testing
