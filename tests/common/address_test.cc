// Proves which addresses are taken, and which of them count as this machine's.

#include "common/net/address.h"

#include <gtest/gtest.h>

namespace trainyard {
namespace {

TEST(Address, ReadsHostAndPortAndWritesThemBack) {
  EXPECT_EQ(ParseAddress("127.0.0.1:7070")->port, 7070);
  EXPECT_EQ(ParseAddress("[::1]:0")->host, "::1");
  EXPECT_EQ(ParseAddress("localhost:7070")->ToString(), "127.0.0.1:7070");
  for (const char* text : {"127.0.0.1:7070", "[::1]:0", "example.org:65535"}) {
    EXPECT_EQ(ParseAddress(text)->ToString(), text);
  }
}

TEST(Address, OthersAreRefused) {
  for (const char* wrong : {"", ":", "127.0.0.1", ":70", "host:", "host:70000", "host:-1", "host:x",
                            "::1", "2001:db8::1", "[]:1", "[::1]", "unix:/tmp/x"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseAddress(wrong).status())) << wrong;
  }
}

// Bug it must catch: a name that begins like the loopback network, taken for it.
TEST(Address, OnlyThisMachineIsLoopback) {
  for (const char* address : {"127.0.0.1:7070", "localhost:1", "[::1]:7070", "127.8.9.10:1"}) {
    EXPECT_TRUE(ParseAddress(address)->loopback()) << address;
  }
  for (const char* address : {"10.0.0.1:7070", "example.org:1", "0.0.0.0:1", "[::]:1",
                              "[2001:db8::1]:1", "127.evil.org:7070", "localhost.evil.org:1"}) {
    EXPECT_FALSE(ParseAddress(address)->loopback()) << address;
  }
}

}  // namespace
}  // namespace trainyard
