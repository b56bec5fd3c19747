// Proves that the guard finds real connections whose bytes come to nothing, and no others.

#include "controller/service/flood_guard.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <vector>

#include "absl/time/clock.h"
#include "common/check.h"
#include "common/file_descriptor.h"

namespace trainyard::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class FloodGuardTest : public ::testing::Test {
 protected:
  struct Connection {
    FileDescriptor near, far;
    std::string peer;
    std::shared_ptr<ConnectionUse> use;
  };

  FloodGuardTest() {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address_);
    CHECK(::bind(listener_.get(), name(), size) == 0 && ::listen(listener_.get(), 8) == 0 &&
          ::getsockname(listener_.get(), name(), &size) == 0)
        << errno;
  }

  sockaddr* name() { return reinterpret_cast<sockaddr*>(&address_); }

  static FileDescriptor NewSocket() { return FileDescriptor(::socket(AF_INET, SOCK_STREAM, 0)); }

  Connection Connect(FileDescriptor far = NewSocket()) {
    Connection made{.near = FileDescriptor(), .far = std::move(far), .peer = "", .use = nullptr};
    CHECK(::connect(made.far.get(), name(), sizeof(address_)) == 0) << errno;
    sockaddr_storage from{};
    socklen_t size = sizeof(from);
    made.near =
        FileDescriptor(::accept(listener_.get(), reinterpret_cast<sockaddr*>(&from), &size));
    made.peer = PeerOf(from);
    made.use = users_.Opened(made.peer, ++number_);
    guard_.Add(made.near.get(), made.peer, made.use, now_);
    return made;
  }
  // A call of `account` reaches a handler.
  void Call(const Connection& connection, const std::string& account) {
    ++connection.use->calls_begun;
    users_.Used(connection.peer, account);
  }
  // The peer sends so much, and gRPC reads all of it.
  void Pass(const Connection& connection, size_t bytes) {
    std::string some(64 << 10, 'x');
    while (bytes > 0) {
      const ssize_t sent =
          ::send(connection.far.get(), some.data(), std::min(bytes, some.size()), 0);
      CHECK(sent > 0 &&
            ::recv(connection.near.get(), some.data(), size_t(sent), MSG_WAITALL) == sent);
      bytes -= size_t(sent);
    }
  }
  std::vector<int> Look() {
    now_ += absl::Milliseconds(5);
    return guard_.Look(now_, now_);
  }

  absl::Duration now_ = absl::Seconds(100);
  sockaddr_in address_{};
  FileDescriptor listener_{::socket(AF_INET, SOCK_STREAM, 0)};
  uint64_t number_ = 0;
  ConnectionUsers users_;
  FloodGuard guard_{users_};
};

TEST_F(FloodGuardTest, WhoSendsForNothingMustGoAndOthersFromTherePay) {
  const Connection flooder = Connect(), next = Connect(), other = Connect();
  Pass(flooder, 8 << 20);
  Pass(other, 4 << 10);
  EXPECT_THAT(Look(), ElementsAre(flooder.near.get()));
  EXPECT_TRUE(guard_.Owes(other.peer, now_));
  Pass(next, 600 << 10);
  Pass(other, 4 << 10);
  EXPECT_THAT(Look(), ElementsAre(next.near.get())) << "and not one that makes a small call";
  now_ += absl::Seconds(20);
  EXPECT_FALSE(guard_.Owes(other.peer, now_));
}

// Bug it must catch: a thousand connections, each of which sends too little for nothing to be cut
// off, keep a core busy.
TEST_F(FloodGuardTest, ManyWhoSendLittleForNothingMustGo) {
  std::vector<Connection> many;
  for (int i = 0; i < 300; ++i) {
    many.push_back(Connect());
    Call(many.back(), "alice");
  }
  size_t gone = 0;
  for (int i = 0; i < 80; ++i) {  // Four seconds, and in each half a millisecond's work for each.
    for (const Connection& each : many) Pass(each, 3 << 10);
    now_ += absl::Milliseconds(45);
    gone += Look().size();
  }
  EXPECT_EQ(gone, many.size());
}

// Bug it must catch: who sends slowly owes nothing, and what each connection sent stays in memory.
TEST_F(FloodGuardTest, StrangersTogetherHoldLittle) {
  std::vector<Connection> slow;
  size_t gone = 0;
  const Connection caller = Connect();
  Call(caller, "alice");
  Pass(caller, 900 << 10);
  for (int i = 0; i < 40; ++i) {  // Half a megabyte each, and time enough to forgive the charge.
    slow.push_back(Connect());
    Pass(slow.back(), 512 << 10);
    now_ += absl::Seconds(1);
    for (const int fd : Look()) {
      EXPECT_NE(fd, caller.near.get());
      ++gone;
    }
  }
  EXPECT_GE(gone, 8u);
  EXPECT_LE(gone, 10u);
  // A closed connection holds nothing.
  for (size_t i = 0; i + 1 < slow.size(); ++i) slow[i].near = FileDescriptor();
  Pass(slow.back(), 256 << 10);
  EXPECT_THAT(Look(), IsEmpty());
}

// Bug it must catch: those whose requests wait while gRPC works on a flood are taken for floods.
TEST_F(FloodGuardTest, ThoseThatStandStillShareTheTime) {
  std::vector<Connection> callers;
  for (int i = 0; i < 10; ++i) {
    callers.push_back(Connect());
    Call(callers.back(), "alice");
    Pass(callers.back(), 40 << 10);
    CHECK(::send(callers.back().far.get(), "more", 4, 0) == 4);
  }
  for (int i = 0; i < 3; ++i) EXPECT_THAT(Look(), IsEmpty());
  for (const Connection& each : callers) {
    CHECK(::send(each.far.get(), "more", 4, 0) == 4);
    char bytes[4];
    CHECK(::recv(each.near.get(), bytes, 4, MSG_WAITALL) == 4);
  }
  for (int i = 0; i < 8; ++i) EXPECT_THAT(Look(), IsEmpty());
}

// Bug it must catch: over TLS, peers that only connect keep a core busy.
TEST_F(FloodGuardTest, ConnectionsWithoutACallArePaidBySource) {
  std::vector<Connection> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(Connect());
  EXPECT_THAT(Look(), IsEmpty());
  EXPECT_FALSE(guard_.Owes(silent[0].peer, now_)) << "they may still call";
  now_ += absl::Seconds(1);
  EXPECT_THAT(Look(), IsEmpty());
  EXPECT_TRUE(guard_.Owes(silent[0].peer, now_));
  // A call shows that the handshake was worth its time.
  for (const Connection& each : silent) {
    Call(each, "alice");
    Pass(each, 10);
  }
  EXPECT_THAT(Look(), IsEmpty());
  EXPECT_FALSE(guard_.Owes(silent[0].peer, now_));
}

TEST_F(FloodGuardTest, AConnectionThatEndsWithoutACallIsPaidAtOnce) {
  std::string peer;
  for (int i = 0; i < 100; ++i) peer = Connect().peer;
  EXPECT_TRUE(guard_.Owes(peer, now_)) << "each had the descriptor of the one before";
}

TEST_F(FloodGuardTest, CallersHaveNotPaidForTheirHandshakes) {
  std::vector<Connection> callers;
  for (int i = 0; i < 100; ++i) {
    callers.push_back(Connect());
    Call(callers.back(), "alice");
  }
  now_ += absl::Seconds(1);
  EXPECT_THAT(Look(), IsEmpty());
  EXPECT_FALSE(guard_.Owes(callers[0].peer, now_));
  Pass(callers[0], 500 << 10);
  EXPECT_THAT(Look(), IsEmpty()) << "nor does the account owe";
}

// Bug it must catch: a script that makes a call after another shuts its own address out.
TEST_F(FloodGuardTest, WhoCallsAndLeavesBetweenTwoLooksHasNotPaidForTheHandshake) {
  std::string peer;
  for (int i = 0; i < 100; ++i) {
    const Connection caller = Connect();
    Call(caller, "alice");
    users_.Closed(caller.peer, number_);
    peer = caller.peer;
  }
  EXPECT_FALSE(guard_.Owes(peer, now_));
}

TEST_F(FloodGuardTest, TheControllersOwnUserStays) {
  const Connection owner = Connect();
  Call(owner, ConnectionUsers::kOwner);
  Pass(owner, 16 << 20);
  EXPECT_THAT(Look(), IsEmpty());
}

// Bug it must catch: who called first while the account owed sends 2 KB a round trip for ever.
TEST_F(FloodGuardTest, WhoOwesNothingAnyMoreMaySendMoreAtOnce) {
  const auto buffer = [](const Connection& connection) {
    int bytes = 0;
    socklen_t size = sizeof(bytes);
    CHECK(::getsockopt(connection.near.get(), SOL_SOCKET, SO_RCVBUF, &bytes, &size) == 0);
    return bytes;
  };
  const int small = 4 << 10;
  CHECK(::setsockopt(listener_.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)) == 0);
  const Connection flooder = Connect(), caller = Connect();
  Call(flooder, "alice");
  Pass(flooder, 8 << 20);
  EXPECT_THAT(Look(), ElementsAre(flooder.near.get()));
  Call(caller, "alice");
  Pass(caller, 10);
  EXPECT_THAT(Look(), IsEmpty());
  const int before = buffer(caller);
  now_ += absl::Seconds(20);
  Pass(caller, 10);
  EXPECT_THAT(Look(), IsEmpty());
  EXPECT_GT(buffer(caller), 4 * before);
  Pass(caller, 256 << 10);  // The window grows with what is read.
  const std::string much(256 << 10, 'x');
  CHECK(::send(caller.far.get(), much.data(), much.size(), MSG_DONTWAIT) > 0);
  int arrived = 0;
  for (int i = 0; i < 5000 && arrived < 32 << 10; ++i) {
    CHECK(::ioctl(caller.near.get(), FIONREAD, &arrived) == 0);
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_GE(arrived, 32 << 10) << "although nothing was read";
}

// Bug it must catch: a caller who is cut off comes back at once, by as many connections as before.
TEST_F(FloodGuardTest, WhereACallerWasCutOffNewcomersMustWait) {
  const Connection flooder = Connect(), quiet = Connect();
  Call(flooder, "alice");
  Pass(quiet, 10);
  EXPECT_THAT(Look(), IsEmpty());
  EXPECT_FALSE(guard_.Owes(quiet.peer, now_));
  Pass(flooder, 8 << 20);
  EXPECT_THAT(Look(), ElementsAre(flooder.near.get()));
  EXPECT_TRUE(guard_.Owes(quiet.peer, now_));
}

// Bug it must catch: gRPC begins the call of a flooder after the cut, and the address owes nothing.
TEST_F(FloodGuardTest, WhoCallsAfterTheCutDoesNotTakeOverWhatTheSourceOwes) {
  const Connection flooder = Connect();
  Pass(flooder, 24 << 20);
  EXPECT_THAT(Look(), ElementsAre(flooder.near.get()));
  Call(flooder, "alice");
  now_ += absl::Milliseconds(300);
  EXPECT_THAT(Look(), IsEmpty());
  now_ += absl::Milliseconds(300);
  EXPECT_THAT(Look(), IsEmpty());
  EXPECT_TRUE(guard_.Owes(flooder.peer, now_));
}

TEST_F(FloodGuardTest, HurriesWhileAStrangerSendsMoreThanAFirstCall) {
  const Connection stranger = Connect(), caller = Connect();
  Call(caller, "alice");
  Pass(caller, 2000);
  EXPECT_THAT(Look(), IsEmpty());
  EXPECT_FALSE(guard_.hurries());
  Pass(stranger, 2000);
  EXPECT_THAT(Look(), IsEmpty());
  EXPECT_TRUE(guard_.hurries());
}

TEST_F(FloodGuardTest, WhoIsUsefulMaySendWithoutEnd) {
  const Connection good = Connect();
  for (int i = 0; i < 32; ++i) {
    Pass(good, 1 << 20);
    good.use->useful_bytes += (1 << 20) + 1000;
    EXPECT_THAT(Look(), IsEmpty());
  }
}

// Bug it must catch: whoever has no token makes callers at the same address lose their connections.
TEST_F(FloodGuardTest, CallersDoNotPayForStrangersAtTheirAddress) {
  const Connection flooder = Connect(), caller = Connect();
  Call(caller, "alice");
  Pass(flooder, 8 << 20);
  EXPECT_THAT(Look(), ElementsAre(flooder.near.get()));
  Pass(caller, 900 << 10);
  EXPECT_THAT(Look(), IsEmpty());
}

TEST_F(FloodGuardTest, SaysWhoseBytesAreUnread) {
  const Connection worker = Connect();
  EXPECT_THAT(Look(), IsEmpty());
  EXPECT_FALSE(worker.use->unread);
  CHECK(::send(worker.far.get(), "beat", 4, 0) == 4);
  EXPECT_THAT(Look(), IsEmpty());
  EXPECT_TRUE(worker.use->unread);
  EXPECT_TRUE(guard_.waiting());
  char bytes[4];
  CHECK(::recv(worker.near.get(), bytes, 4, MSG_WAITALL) == 4);
  EXPECT_THAT(Look(), IsEmpty());
  EXPECT_FALSE(worker.use->unread);
  EXPECT_FALSE(guard_.waiting());
}

TEST_F(FloodGuardTest, ADescriptorThatIsGivenOutAgainIsAnotherConnection) {
  Connection first = Connect();
  Pass(first, 710 << 10);
  EXPECT_THAT(Look(), IsEmpty());
  const int fd = first.near.get();
  FileDescriptor far = NewSocket();
  first.near = FileDescriptor();
  Connection second = Connect(std::move(far));
  ASSERT_EQ(second.near.get(), fd);
  Pass(second, 710 << 10);
  EXPECT_THAT(Look(), IsEmpty()) << "it holds half of what one may";
}

TEST(SourceOfTest, IsAnAddressOrTheHalfOfOneThatAMachineHas) {
  EXPECT_EQ(SourceOf(PeerOf("ipv4:10.0.0.7:51312")), SourceOf(PeerOf("ipv4:10.0.0.7:80")));
  EXPECT_NE(SourceOf(PeerOf("ipv4:10.0.0.7:80")), SourceOf(PeerOf("ipv4:10.0.0.8:80")));
  EXPECT_EQ(SourceOf(PeerOf("ipv6:%5B2001:db8::1%5D:80")),
            SourceOf(PeerOf("ipv6:%5B2001:db8::2%5D:81")));
  EXPECT_NE(SourceOf(PeerOf("ipv6:%5B2001:db8::1%5D:80")),
            SourceOf(PeerOf("ipv6:%5B2001:db8:0:1::1%5D:80")));
}

}  // namespace
}  // namespace trainyard::controller
