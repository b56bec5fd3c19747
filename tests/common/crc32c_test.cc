// Proves that the checksum is the one of RFC 3720, by the examples of its appendix B.4.

#include "common/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace trainyard {
namespace {

TEST(Crc32c, IsThatOfTheRfcsExamples) {
  std::string rising, falling;
  for (int i = 0; i < 32; ++i) rising += char(i), falling += char(31 - i);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(Crc32c(rising), 0x46dd794eu);
  EXPECT_EQ(Crc32c(falling), 0x113fdb5cu);
  EXPECT_EQ(Crc32c(""), 0u);
}

}  // namespace
}  // namespace trainyard
