// Proves kernels/device/narrow.h: every number of bf16 becomes the byte that `ml_dtypes` makes of
// it (tests/golden/make_narrow.py), from every wider type; every byte is the number that it becomes
// again; ties go to even; and how blocks of numbers share scales.

#include "kernels/device/narrow.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

namespace trainyard::testing {
namespace {

// The runs of a format: the first pattern of bf16 of each, with the byte.
std::map<uint32_t, uint8_t> Golden(const std::string& format) {
  std::map<uint32_t, uint8_t> runs;
  std::ifstream in(std::string(std::getenv("TRAINYARD_SOURCE")) + "/tests/golden/narrow.golden");
  std::string name;
  uint32_t first = 0, byte = 0;
  while (in >> name >> std::hex >> first >> byte) {
    if (name == format) runs[first] = uint8_t(byte);
  }
  return runs;
}

template <typename Format>
class Narrow : public ::testing::Test {};
using Formats = ::testing::Types<E4M3, E5M2>;
TYPED_TEST_SUITE(Narrow, Formats);

TYPED_TEST(Narrow, EveryNumberOfBf16BecomesTheByteOfMlDtypes) {
  const std::map<uint32_t, uint8_t> golden = Golden(Name(TypeParam::kDType));
  ASSERT_GT(golden.size(), 200u);
  for (uint32_t bits = 0; bits < 1 << 16; ++bits) {
    const auto x = std::bit_cast<float>(bits << 16);
    const uint8_t want = std::prev(golden.upper_bound(bits))->second;
    ASSERT_EQ(RoundTo<TypeParam>(x), want) << std::hex << bits << ' ' << x;
    ASSERT_EQ(RoundTo<TypeParam>(double(x)), want) << std::hex << bits << ' ' << x;
  }
}

TYPED_TEST(Narrow, EveryByteIsTheNumberThatBecomesTheByteAgain) {
  for (int byte = 0; byte < 256; ++byte) {
    const float number = ToFloat<TypeParam>(uint8_t(byte));
    if (std::isnan(number)) {
      EXPECT_EQ(RoundTo<TypeParam>(number) & 0x7f, TypeParam::kNaN) << byte;
    } else {
      EXPECT_EQ(RoundTo<TypeParam>(number), byte) << number;
    }
  }
  EXPECT_EQ(ToFloat<TypeParam>(RoundTo<TypeParam>(1e30f)), TypeParam::kLargest);
}

// Numbers between those of bf16: halfway to the next, and as little more as the type can say.
TYPED_TEST(Narrow, TiesGoToEven) {
  for (int byte = 0; byte < 0x78; ++byte) {
    const double low = ToFloat<TypeParam>(uint8_t(byte));
    const double tie = (low + ToFloat<TypeParam>(uint8_t(byte + 1))) / 2;
    const int even = byte % 2 == 0 ? byte : byte + 1;
    EXPECT_EQ(RoundTo<TypeParam>(tie), even);
    EXPECT_EQ(RoundTo<TypeParam>(-float(tie)), even | 0x80);
    EXPECT_EQ(RoundTo<TypeParam>(std::nextafter(tie, 1e9)), byte + 1);
    EXPECT_EQ(RoundTo<TypeParam>(std::nextafter(float(tie), 0.0f)), byte);
  }
}

TEST(NarrowE4M3, NumbersAtTheEdges) {
  EXPECT_EQ(ToFloat<E4M3>(0x01), 0x1p-9f);
  EXPECT_EQ(ToFloat<E4M3>(0x08), 0x1p-6f);
  EXPECT_EQ(ToFloat<E4M3>(0xb9), -1.125f);
  EXPECT_EQ(ToFloat<E4M3>(0x7e), 448.0f);
  EXPECT_TRUE(std::isnan(ToFloat<E4M3>(0x7f)) && std::isnan(ToFloat<E4M3>(0xff)));
  EXPECT_TRUE(std::isnan(ToFloat<E4M3>(RoundTo<E4M3>(-INFINITY))));
}

TEST(NarrowE5M2, NumbersAtTheEdges) {
  EXPECT_EQ(ToFloat<E5M2>(0x01), 0x1p-16f);
  EXPECT_EQ(ToFloat<E5M2>(0x04), 0x1p-14f);
  EXPECT_EQ(ToFloat<E5M2>(0x7b), 57344.0f);
  EXPECT_EQ(ToFloat<E5M2>(0xfc), -INFINITY);
  EXPECT_EQ(ToFloat<E5M2>(RoundTo<E5M2>(-INFINITY)), -INFINITY);
  EXPECT_TRUE(std::isnan(ToFloat<E5M2>(0x7d)));
}

TEST(ScaleBlock, DividesAMatrix) {
  const Shape matrix = {2, 65, 200};  // 130 rows.
  EXPECT_EQ(ScaleBlock().ScalesOf(matrix), Shape({1, 1}));
  EXPECT_EQ((ScaleBlock{.rows = 1}).ScalesOf(matrix), Shape({130, 1}));
  EXPECT_EQ((ScaleBlock{.columns = 1}).ScalesOf(matrix), Shape({1, 200}));
  EXPECT_EQ((ScaleBlock{.rows = 1, .columns = 128}).ScalesOf(matrix), Shape({130, 2}));
  EXPECT_EQ((ScaleBlock{.rows = 128, .columns = 128}).ScalesOf(matrix), Shape({2, 2}));
}

}  // namespace
}  // namespace trainyard::testing
