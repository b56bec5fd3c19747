// Proves that Crc32 is zlib's CRC-32, for every length around its strides and at every alignment,
// so that what older programs wrote stays readable. Tried with one bit of a constant changed.

#include "common/crc32.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <random>
#include <string>

namespace trainyard {
namespace {

uint32_t OfZlib(uint32_t crc, const char* data, size_t bytes) {
  return uint32_t(::crc32_z(crc, reinterpret_cast<const Bytef*>(data), bytes));
}

TEST(Crc32, IsTheOneOfTheStandard) { EXPECT_EQ(Crc32(0, "123456789", 9), 0xcbf43926); }

TEST(Crc32, IsZlibsForEveryLengthAndStart) {
  std::mt19937 random(7);
  std::string data(1 << 17, '\0');
  for (char& c : data) c = char(random());
  uint32_t before = 0;
  for (size_t bytes = 0; bytes < 400; ++bytes) {
    const char* begin = data.data() + bytes % 19;
    const uint32_t crc = Crc32(before, begin, bytes);
    ASSERT_EQ(crc, OfZlib(before, begin, bytes)) << bytes;
    before = crc;
  }
  EXPECT_EQ(Crc32(before, data.data(), data.size()), OfZlib(before, data.data(), data.size()));
}

}  // namespace
}  // namespace trainyard
