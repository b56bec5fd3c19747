// Proves who is admitted, who must go, and when, without sockets and with a clock that stands
// still.

#include <arpa/inet.h>
#include <gmock/gmock.h>

#include "common/check.h"
#include "common/http/connections.h"
#include "tests/testing/fake_clock.h"

namespace trainyard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class HttpConnectionsTest : public ::testing::Test {
 protected:
  void Add(size_t count, const std::string& peer) {
    for (size_t i = 0; i < count; ++i) connections_.Add(next_++, peer);
  }

  FakeClock clock_;
  HttpConnections connections_{clock_};
  int next_ = 0;
};

TEST_F(HttpConnectionsTest, ARequestHasADeadlineWhateverComesMeanwhile) {
  Add(1, "a");
  clock_.Advance(kRequestWithin - absl::Milliseconds(1));
  Add(1, "a");
  EXPECT_THAT(connections_.Overdue(), IsEmpty());
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_THAT(connections_.Overdue(), ElementsAre(0));
  connections_.Remove(0);
  EXPECT_THAT(connections_.Overdue(), IsEmpty());
}

TEST_F(HttpConnectionsTest, AnAnswerHasADeadlineOfItsOwn) {
  Add(1, "a");
  clock_.Advance(kRequestWithin - absl::Milliseconds(1));
  connections_.RequestComplete(0);
  clock_.Advance(kAnswerWithin - absl::Milliseconds(1));
  EXPECT_THAT(connections_.Overdue(), IsEmpty());
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_THAT(connections_.Overdue(), ElementsAre(0));
}

TEST_F(HttpConnectionsTest, OneAddressCannotFillTheServer) {
  Add(kMostConnectionsPerAddress - 1, "a");
  EXPECT_TRUE(connections_.HasRoom("a"));
  Add(1, "a");
  EXPECT_FALSE(connections_.HasRoom("a"));
  EXPECT_TRUE(connections_.HasRoom("b"));
}

TEST_F(HttpConnectionsTest, AllAddressesTogetherCannotOverfillTheServer) {
  Add(kMostConnections / 2, "a");
  Add(kMostConnections / 2 - 1, "b");
  EXPECT_TRUE(connections_.HasRoom("c"));
  Add(1, "c");
  EXPECT_FALSE(connections_.HasRoom("d"));
}

TEST_F(HttpConnectionsTest, WhoHasWaitedLongestMakesRoom) {
  Add(1, "b");
  clock_.Advance(absl::Seconds(1));
  Add(kMostConnectionsPerAddress, "a");
  EXPECT_EQ(connections_.InTheWayOf("a"), 1) << "an address makes room for itself";
  clock_.Advance(absl::Seconds(1));
  Add(kMostConnections - kMostConnectionsPerAddress - 1, "c");
  EXPECT_EQ(connections_.InTheWayOf("d"), 0);
  connections_.RequestComplete(0);
  EXPECT_EQ(connections_.InTheWayOf("d"), 1) << "who is being answered stays";
}

TEST_F(HttpConnectionsTest, WhereAllAreAnsweredNobodyMakesRoom) {
  Add(kMostConnectionsPerAddress, "a");
  for (int fd = 0; fd < next_; ++fd) connections_.RequestComplete(fd);
  EXPECT_EQ(connections_.InTheWayOf("a"), std::nullopt);
}

std::string KeyOf(const char* host) {
  sockaddr_in6 six = {};
  sockaddr_in four = {};
  if (::inet_pton(AF_INET, host, &four.sin_addr) == 1) {
    four.sin_family = AF_INET;
    return PeerKey(reinterpret_cast<const sockaddr&>(four));
  }
  six.sin6_family = AF_INET6;
  CHECK(::inet_pton(AF_INET6, host, &six.sin6_addr) == 1) << host;
  return PeerKey(reinterpret_cast<const sockaddr&>(six));
}

TEST(PeerKey, AMachineIsOnePeerHoweverManyAddressesItMakesUp) {
  EXPECT_NE(KeyOf("10.0.0.1"), KeyOf("10.0.0.2"));
  EXPECT_EQ(KeyOf("10.0.0.1"), KeyOf("::ffff:10.0.0.1"));
  EXPECT_NE(KeyOf("::ffff:10.0.0.1"), KeyOf("::ffff:10.0.0.2"));
  EXPECT_EQ(KeyOf("2001:db8:1:2::1"), KeyOf("2001:db8:1:2:ffff:ffff:ffff:ffff"));
  EXPECT_NE(KeyOf("2001:db8:1:2::1"), KeyOf("2001:db8:1:3::1"));
}

}  // namespace
}  // namespace trainyard
