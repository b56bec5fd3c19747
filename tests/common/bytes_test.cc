// Proves that sizes stay short and carry their unit, at the borders between units too.

#include "common/bytes.h"

#include <gtest/gtest.h>

namespace trainyard {
namespace {

TEST(FormatBytes, IsBinary) {
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1.00 KiB");
  EXPECT_EQ(FormatBytes(13.5 * (1 << 20)), "13.5 MiB");
  EXPECT_EQ(FormatBytes(1023.9 * (1 << 20)), "1.00 GiB");
}

}  // namespace
}  // namespace trainyard
