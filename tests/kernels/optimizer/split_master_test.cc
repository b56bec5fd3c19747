// Proves kernels/optimizer/split_master.h: every master comes back to the bit, and its weight is
// the nearest bf16.

#include "kernels/optimizer/split_master.h"

#include <cmath>
#include <cstring>

#include "tests/kernels/call.h"
#include "tests/testing/array.h"
#include "tests/testing/numeric_grad.h"

namespace trainyard::testing::split_master {

float FloatOf(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t BitsOf(float x) { return std::bit_cast<uint32_t>(x); }

struct Parts {
  Array<bf16> weight;
  Array<int16_t> remainder;
};

Parts SplitOf(const Array<float>& master) {
  Parts parts{Poison<bf16>(master.shape), Filled<int16_t>(master.shape, 7)};
  Call(SplitMasterArgs{.master = master, .weight = parts.weight, .remainder = parts.remainder});
  return parts;
}

Array<float> JoinOf(const Parts& parts) {
  auto master = Poison<float>(parts.weight.shape);
  Call(JoinMasterArgs{.weight = parts.weight, .remainder = parts.remainder, .master = master});
  return master;
}

// Of each upper half, that is of each sign, exponent and fraction of a bf16: the lower halves
// around the ties and the ends, and some more.
Array<float> Masters() {
  constexpr uint32_t kStep = 4093;  // Prime.
  std::vector<float> values;
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const uint32_t lower : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xfffeu, 0xffffu,
                                 upper * kStep % 0x10000u}) {
      values.push_back(FloatOf(upper << 16 | lower));
    }
  }
  return {Shape{int64_t(values.size())}, values};
}

TEST(SplitMaster, EveryMasterComesBackToTheBit) {
  const Array<float> masters = Masters();
  const Array<float> back = JoinOf(SplitOf(masters));
  for (size_t i = 0; i < masters.v.size(); ++i) {
    if (std::isnan(masters.v[i])) {
      ASSERT_EQ(BitsOf(back.v[i]), (BitsOf(masters.v[i]) & 0x80000000u) | 0x7fc00000u);
    } else {
      ASSERT_EQ(BitsOf(back.v[i]), BitsOf(masters.v[i])) << masters.v[i];
    }
  }
}

// On the host, whose functions all kernels use: every 61st of all numbers that an f32 can be. With
// a step of 1, which takes seconds, all of them do.
TEST(SplitMaster, NumbersFromAllOverComeBackToTheBit) {
  constexpr uint64_t kStep = 61;
  uint32_t differ = 0;
  for (uint64_t u = 0; u < uint64_t{1} << 32; u += kStep) {
    const float master = FloatOf(uint32_t(u));
    const SplitWeight split = Split(master);
    const uint32_t back = BitsOf(Join(split.weight, split.remainder));
    const bool nan = (u & 0x7fffffff) > 0x7f800000;
    differ += back != (nan ? (uint32_t(u) & 0x80000000) | 0x7fc00000 : uint32_t(u));
  }
  EXPECT_EQ(differ, 0u);
}

TEST(SplitMaster, TheWeightIsTheNearest) {
  const Array<float> masters = Masters();
  const Parts parts = SplitOf(masters);
  for (size_t i = 0; i < masters.v.size(); ++i) {
    const double master = masters.v[i];
    const float weight = parts.weight.v[i];
    if (std::isnan(master)) {
      ASSERT_TRUE(std::isnan(weight));
      continue;
    }
    // Ties are rounded away from zero, and otherwise the weight is that of rounding to even.
    const bool tie = (BitsOf(masters.v[i]) & 0xffff) == 0x8000;
    const uint16_t even = bf16(masters.v[i]).bits;
    const uint16_t away = uint16_t((BitsOf(masters.v[i]) >> 16) + 1);
    ASSERT_EQ(parts.weight.v[i].bits, tie ? away : even) << master;
    ASSERT_EQ(std::signbit(weight), std::signbit(master)) << master;
  }
}

TEST(SplitMaster, TakesAnyRange) {
  auto masters = Normal<float>({1003}, 1);
  Parts parts{Poison<bf16>({1003}), Filled<int16_t>({1003}, 7)};
  const auto inner = [](auto& a) {
    auto* data = a.v.data();
    return Tensor{{data + 1, DTypeOf<std::remove_pointer_t<decltype(data)>>::value, {1001}}};
  };
  Call(SplitMasterArgs{.master = inner(masters),
                       .weight = inner(parts.weight),
                       .remainder = inner(parts.remainder)});
  auto back = Filled<float>({1003}, 9);
  Call(JoinMasterArgs{
      .weight = inner(parts.weight), .remainder = inner(parts.remainder), .master = inner(back)});
  EXPECT_TRUE(std::isnan(float(parts.weight.v[0])));
  EXPECT_EQ(parts.remainder.v.back(), 7);
  EXPECT_EQ(back.v[0], 9);
  EXPECT_EQ(back.v.back(), 9);
  for (size_t i = 1; i + 1 < back.v.size(); ++i) ASSERT_EQ(back.v[i], masters.v[i]);
}

}  // namespace trainyard::testing::split_master
