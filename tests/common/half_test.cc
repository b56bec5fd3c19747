// Proves that all 65536 numbers of f16 survive the way to f32 and back, and that f32 is rounded to
// the nearest of them, to even between two.

#include "common/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace trainyard {
namespace {

TEST(Half, EveryNumberComesBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = HalfToFloat(uint16_t(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(value)))) << bits;
    } else {
      EXPECT_EQ(FloatToHalf(value), bits) << value;
    }
  }
  EXPECT_EQ(HalfToFloat(0x3c00), 1.0f);
  EXPECT_EQ(HalfToFloat(0xc248), -3.140625f);
  EXPECT_EQ(HalfToFloat(0x7bff), 65504.0f);
  EXPECT_EQ(HalfToFloat(1), 0x1p-24f);
}

// Between each number and the next one there is the middle, which goes to the even one.
TEST(Half, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const float low = HalfToFloat(uint16_t(bits));
    const float high = bits == 0x7bff ? 65536.0f : HalfToFloat(uint16_t(bits + 1));
    const float middle = (low + high) / 2;
    EXPECT_EQ(FloatToHalf(middle), bits + bits % 2);
    EXPECT_EQ(FloatToHalf(std::nextafter(middle, 0.0f)), bits);
    EXPECT_EQ(FloatToHalf(-std::nextafter(middle, 1e6f)), 0x8000 + bits + 1);
  }
  EXPECT_EQ(FloatToHalf(std::numeric_limits<float>::infinity()), 0x7c00);
  EXPECT_EQ(FloatToHalf(-1e30f), 0xfc00);
}

}  // namespace
}  // namespace trainyard
