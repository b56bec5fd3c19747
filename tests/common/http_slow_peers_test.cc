// Proves that peers which are slow, or many, cost others nothing: they are cut off in time, and a
// reader who behaves gets the page meanwhile. And that a server whose process runs out of
// descriptors is back by itself.

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <optional>

#include "absl/time/clock.h"
#include "common/http/server.h"
#include "tests/common/http_peers.h"

namespace trainyard {
namespace {

using ::testing::EndsWith;
using testing::Get;
using testing::HttpPeer;
using testing::HttpPeers;
using testing::WaitUntil;

constexpr char kHalfARequest[] = "GET / HTTP/1.1\r\nHost: x\r\nX: ";

// More than the kernel buffers for one connection.
constexpr size_t kHugeBytes = 16 << 20;

class SlowPeersTest : public ::testing::Test {
 protected:
  SlowPeersTest()
      : server_(HttpServer::Start({.host = "127.0.0.1"}, [](const HttpRequest& request) {
                  const bool huge = request.path == "/huge";
                  return HttpResponse{.body = huge ? std::string(kHugeBytes, 'x') : "hello"};
                }).value()) {}
  int port() const { return server_->address().port; }
  static size_t NumCutOff(const std::vector<HttpPeer>& peers) {
    return size_t(std::count_if(peers.begin(), peers.end(),
                                [](const HttpPeer& peer) { return peer.CutOff(); }));
  }

  std::unique_ptr<HttpServer> server_;
};

TEST_F(SlowPeersTest, HundredsWhoNeverFinishDoNotDelayAReader) {
  std::vector<std::vector<HttpPeer>> crowds;
  for (const char* from : {"127.0.0.2", "127.0.0.3", "127.0.0.4"}) {
    crowds.push_back(HttpPeers(100, port(), from));
    for (const HttpPeer& peer : crowds.back()) peer.Send(kHalfARequest);
    // From elsewhere, and from behind the same address.
    const absl::Time begin = absl::Now();
    for (const char* reader : {"127.0.0.1", from, "127.0.0.2"}) {
      EXPECT_THAT(Get(port(), "/", reader), EndsWith("hello")) << reader;
    }
    EXPECT_LT(absl::Now() - begin, kRequestWithin) << "the reader waited for others to be cut off";
  }
}

TEST_F(SlowPeersTest, WhoIsSlowIsCutOff) {
  const size_t before = testing::OpenDescriptors();
  const std::vector<HttpPeer> silent = HttpPeers(5, port(), "127.0.0.2");
  const std::vector<HttpPeer> half = HttpPeers(5, port(), "127.0.0.2");
  const std::vector<HttpPeer> dripping = HttpPeers(5, port(), "127.0.0.3");
  for (const HttpPeer& peer : half) peer.Send(kHalfARequest);
  for (const HttpPeer& peer : dripping) peer.Send(kHalfARequest);
  absl::Time next = absl::Now();
  EXPECT_TRUE(WaitUntil([&] {
    if (absl::Now() >= next) {
      for (const HttpPeer& peer : dripping) peer.Send("x");
      next += absl::Seconds(1);
    }
    return NumCutOff(silent) + NumCutOff(half) + NumCutOff(dripping) == 15;
  }));
  EXPECT_TRUE(WaitUntil([&] { return testing::OpenDescriptors() == before + 15; }))
      << "the server's ends are closed";
  EXPECT_THAT(Get(port(), "/"), EndsWith("hello"));
}

// The client cannot see it: its end of the connection is full.
TEST_F(SlowPeersTest, WhoDoesNotReadIsCutOff) {
  const size_t before = testing::OpenDescriptors();
  const HttpPeer reader(port(), "127.0.0.1", 4096);
  reader.Send("GET /huge HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(WaitUntil([&] { return testing::OpenDescriptors() == before + 2; }));
  EXPECT_TRUE(WaitUntil([&] { return testing::OpenDescriptors() == before + 1; }));
  EXPECT_LT(reader.ReadAll().size(), kHugeBytes);
}

TEST_F(SlowPeersTest, WhoIsBeingAnsweredIsInNobodysWay) {
  const HttpPeer reader(port(), "127.0.0.2", 4096);
  reader.Send("GET /huge HTTP/1.1\r\nHost: x\r\n\r\n");
  char byte = 0;
  ASSERT_EQ(::recv(reader.fd(), &byte, 1, 0), 1);
  const std::vector<HttpPeer> crowd = HttpPeers(100, port(), "127.0.0.2");
  EXPECT_TRUE(WaitUntil([&] { return NumCutOff(crowd) > 60; }));
  EXPECT_GT(reader.ReadAll().size(), kHugeBytes);
}

TEST_F(SlowPeersTest, ConnectionsBeyondTheLimitsAreCutOffAtOnce) {
  const std::vector<HttpPeer> first =
      HttpPeers(int(kMostConnectionsPerAddress) + 8, port(), "127.0.0.2");
  const std::vector<HttpPeer> second =
      HttpPeers(int(kMostConnectionsPerAddress), port(), "127.0.0.3");
  EXPECT_TRUE(WaitUntil([&] { return NumCutOff(first) >= 8; }));
  EXPECT_THAT(Get(port(), "/"), EndsWith("hello"));
  EXPECT_TRUE(WaitUntil([&] { return NumCutOff(first) + NumCutOff(second) == 72; }));
  EXPECT_THAT(Get(port(), "/"), EndsWith("hello"));
}

TEST_F(SlowPeersTest, AServerWithSlowPeersEndsAtOnce) {
  const std::vector<HttpPeer> peers = HttpPeers(20, port(), "127.0.0.2");
  for (const HttpPeer& peer : peers) peer.Send(kHalfARequest);
  EXPECT_THAT(Get(port(), "/"), EndsWith("hello"));
  const absl::Time begin = absl::Now();
  server_.reset();
  EXPECT_LT(absl::Now() - begin, absl::Seconds(1));
  EXPECT_EQ(NumCutOff(peers), 20u);
}

absl::Duration ProcessorTime() {
  timespec used = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return absl::DurationFromTimespec(used);
}

// No descriptor of this process can be opened while this lives.
class NoMoreDescriptors {
 public:
  NoMoreDescriptors() {
    CHECK(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const int lowest_free = ::dup(STDIN_FILENO);
    CHECK(lowest_free >= 0);
    ::close(lowest_free);
    const rlimit lowered = {.rlim_cur = rlim_t(lowest_free), .rlim_max = before_.rlim_max};
    CHECK(::setrlimit(RLIMIT_NOFILE, &lowered) == 0);
  }
  ~NoMoreDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_;
};

// Catches a server that serves the first address of its name alone, after a shortage or at all.
TEST(HttpAddresses, EachOfANameIsServedAlsoAfterDescriptorsRanOut) {
  const auto server = HttpServer::Start({.host = "two.test"}, [](const HttpRequest&) {
                        return HttpResponse{.body = "hello"};
                      }).value();  // tests/testing/names.cc
  const auto connect = [&](const std::vector<HttpPeer>& peers) {
    peers[0].Connect(server->address().port, "127.0.0.1");
    peers[1].Connect(server->address().port, "127.0.0.2");
  };
  const auto expect_served = [](const std::vector<HttpPeer>& peers) {
    for (const HttpPeer& peer : peers) {
      peer.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
      EXPECT_THAT(peer.ReadAll(), EndsWith("hello"));
    }
  };
  std::vector<HttpPeer> peers(2);
  connect(peers);
  expect_served(peers);
  const std::vector<HttpPeer> waiting(2);
  std::optional<NoMoreDescriptors> none(std::in_place);
  connect(waiting);  // By the kernel, though the server has no descriptor to accept with.
  const absl::Duration used = ProcessorTime();
  absl::SleepFor(absl::Seconds(1));
  EXPECT_LT(ProcessorTime() - used, absl::Milliseconds(300)) << "it must not ask without a pause";
  none.reset();
  expect_served(waiting);
}

TEST_F(SlowPeersTest, AServerWithoutDescriptorsIsBackWhenThereAreSome) {
  const HttpPeer before(port());
  EXPECT_THAT(Get(port(), "/"), EndsWith("hello")) << "so `before` is accepted, too";
  const HttpPeer waiting;  // Has its own descriptor before the limit.
  std::optional<NoMoreDescriptors> none(std::in_place);
  waiting.Connect(port());  // By the kernel, though the server has no descriptor to accept with.
  const std::string request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  waiting.Send(request);
  const absl::Duration used = ProcessorTime();
  absl::SleepFor(absl::Seconds(1));
  EXPECT_LT(ProcessorTime() - used, absl::Milliseconds(300)) << "it must not ask without a pause";
  before.Send(request);
  EXPECT_THAT(before.ReadAll(), EndsWith("hello")) << "who was there before is served";
  none.reset();
  EXPECT_THAT(waiting.ReadAll(), EndsWith("hello")) << "without connecting again";
  EXPECT_THAT(Get(port(), "/"), EndsWith("hello"));
}

}  // namespace
}  // namespace trainyard
