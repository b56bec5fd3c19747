// Proves that nothing listens off loopback unless told to.

#include "controller/service/address.h"

#include <gtest/gtest.h>

namespace trainyard::controller {
namespace {

TEST(Address, ListensOffLoopbackOnlyWhenToldTo) {
  for (const char* local : {"127.0.0.1:1", "127.1.2.3:1", "localhost:1", "[::1]:1"}) {
    EXPECT_TRUE(CheckListen(*ParseAddress(local), false).ok()) << local;
  }
  for (const char* open : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "example.org:1"}) {
    EXPECT_FALSE(CheckListen(*ParseAddress(open), false).ok()) << open;
    EXPECT_TRUE(CheckListen(*ParseAddress(open), true).ok()) << open;
  }
}

}  // namespace
}  // namespace trainyard::controller
