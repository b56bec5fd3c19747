// Proves that a listener serves every address of its name by one port, and says why it cannot.
#include "common/net/listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;

Address At(const std::string& host, int port) { return {.host = host, .port = port}; }

// Returns a connection to the listener's own address.
FileDescriptor ConnectTo(const Listener& listener) {
  sockaddr_storage name{};
  socklen_t size = sizeof(name);
  CHECK(::getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&name), &size) == 0);
  FileDescriptor socket(::socket(name.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  CHECK(::connect(socket.get(), reinterpret_cast<sockaddr*>(&name), size) == 0);
  return socket;
}

TEST(ListenerTest, EveryAddressOfANameHasTheSamePortAndAcceptsItsPeers) {
  const auto listeners = Listener::Listen(At("two.test", 0));  // tests/testing/names.cc
  ASSERT_TRUE(listeners.ok()) << listeners.status();
  ASSERT_EQ(listeners->size(), 2u);
  for (const Listener& listener : *listeners) {
    EXPECT_EQ(listener.address().host, "two.test");
    EXPECT_EQ(listener.address().port, listeners->front().address().port);
    EXPECT_GT(listener.address().port, 0);
    EXPECT_TRUE(absl::IsUnavailable(listener.Accept().status())) << "nobody has come";
    const FileDescriptor peer = ConnectTo(listener);
    pollfd ready = {listener.fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&ready, 1, 10'000), 1);
    const auto accepted = listener.Accept();
    ASSERT_TRUE(accepted.ok()) << accepted.status();
    EXPECT_TRUE(accepted->socket.valid());
  }
}

TEST(ListenerTest, ATakenPortIsToldFromAnAddressThatTheMachineDoesNotHave) {
  const auto first = Listener::Listen(At("127.0.0.1", 0));
  ASSERT_TRUE(first.ok()) << first.status();
  const int port = first->front().address().port;
  const absl::Status taken = Listener::Listen(At("127.0.0.1", port)).status();
  EXPECT_TRUE(absl::IsAlreadyExists(taken)) << taken;
  EXPECT_EQ(taken.message(),
            absl::StrCat("cannot listen on 127.0.0.1:", port, ": the port is taken"));
  const absl::Status foreign = Listener::Listen(At("192.0.2.1", 0)).status();  // RFC 5737.
  EXPECT_TRUE(absl::IsUnavailable(foreign)) << foreign;
  EXPECT_THAT(std::string(foreign.message()), HasSubstr("cannot listen on 192.0.2.1:0: "));
}

TEST(ListenerTest, APortIsTakenIfItIsAtOneAddressOfTheName) {
  const auto second = Listener::Listen(At("127.0.0.2", 0));
  ASSERT_TRUE(second.ok()) << second.status();
  const int port = second->front().address().port;
  const absl::Status taken = Listener::Listen(At("two.test", port)).status();
  EXPECT_TRUE(absl::IsAlreadyExists(taken)) << taken;
  // What was bound before the port was found taken is free again.
  EXPECT_TRUE(Listener::Listen(At("127.0.0.1", port)).ok());
}

TEST(ListenerTest, AnAddressThatTheMachineDoesNotHaveIsLeftOut) {
  const auto listeners = Listener::Listen(At("half.test", 0));
  ASSERT_TRUE(listeners.ok()) << listeners.status();
  EXPECT_EQ(listeners->size(), 1u);
}

TEST(ListenerTest, ConnectionsInheritTheReceiveBuffer) {
  const auto small = Listener::Listen(At("127.0.0.1", 0), {.receive_buffer = 2048});
  const auto usual = Listener::Listen(At("127.0.0.1", 0));
  ASSERT_TRUE(small.ok() && usual.ok());
  const auto buffer = [](const Listener& listener) {
    const FileDescriptor peer = ConnectTo(listener);
    pollfd ready = {listener.fd(), POLLIN, 0};
    EXPECT_EQ(::poll(&ready, 1, 10'000), 1);
    const auto accepted = listener.Accept();
    int bytes = 0;
    socklen_t size = sizeof(bytes);
    EXPECT_EQ(::getsockopt(accepted->socket.get(), SOL_SOCKET, SO_RCVBUF, &bytes, &size), 0);
    return bytes;
  };
  EXPECT_LE(buffer(small->front()), 2 * 2304);  // The kernel doubles it, and has a least size.
  EXPECT_GT(buffer(usual->front()), 2 * 2304);
}

}  // namespace
}  // namespace trainyard
