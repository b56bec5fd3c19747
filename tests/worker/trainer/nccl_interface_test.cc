// Proves which network device NCCL is told to use.

#include "worker/trainer/nccl_interface.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace trainyard {
namespace {

TEST(NcclInterface, ADeviceIsFoundByItsNameAndByItsAddress) {
  EXPECT_EQ(NetworkDevice("lo").value_or(""), "lo");
  EXPECT_EQ(NetworkDevice("127.0.0.1").value_or(""), "lo");
  for (const char* none : {"192.0.2.1", "no-such-device", ""}) {
    EXPECT_TRUE(absl::IsNotFound(NetworkDevice(none).status())) << none;
  }
}

TEST(NcclInterface, NcclIsToldExactlyOneDeviceUnlessTheOperatorHasSaidMore) {
  ::unsetenv("NCCL_SOCKET_IFNAME");
  ASSERT_TRUE(KeepNcclOn("127.0.0.1").ok());
  EXPECT_STREQ(std::getenv("NCCL_SOCKET_IFNAME"), "=lo");
  ::setenv("NCCL_SOCKET_IFNAME", "ib0", 1);
  ASSERT_TRUE(KeepNcclOn("127.0.0.1").ok());
  EXPECT_STREQ(std::getenv("NCCL_SOCKET_IFNAME"), "ib0");
}

}  // namespace
}  // namespace trainyard
