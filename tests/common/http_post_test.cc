// Proves that a server that takes POST takes small ones alone, and reads no more than that of
// others.

#include <gmock/gmock.h>

#include "common/http/server.h"
#include "tests/common/http_peers.h"

namespace trainyard {
namespace {

using testing::Answer;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr size_t kMost = 5'000;

class HttpPostTest : public ::testing::Test {
 protected:
  HttpPostTest()
      : server_(HttpServer::Start({.host = "127.0.0.1"},
                                  [this](const HttpRequest& request) -> HttpResponse {
                                    const MutexLock lock(mutex_);
                                    requests_.push_back(request);
                                    return {.body = "hello"};
                                  },
                                  {.most_body_bytes = kMost})
                    .value()) {}
  int port() const { return server_->address().port; }
  std::vector<HttpRequest> Requests() {
    const MutexLock lock(mutex_);
    return requests_;
  }
  static std::string Head(absl::string_view headers) {
    return absl::StrCat("POST /a?b=c HTTP/1.1\r\nHost: x\r\n", headers, "\r\n\r\n");
  }
  static std::string Post(absl::string_view body) {
    return absl::StrCat(Head(absl::StrCat("Content-Length: ", body.size())), body);
  }

 private:
  Mutex mutex_;
  std::vector<HttpRequest> requests_ ABSL_GUARDED_BY(mutex_);

 protected:
  const std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpPostTest, TheHandlerSeesTheBodyOnceItIsWhole) {
  const std::string most(kMost, 'x');
  for (const std::string& body : {std::string(), std::string("a\0=b&", 5), most}) {
    EXPECT_THAT(Answer(port(), Post(body)), EndsWith("\r\n\r\nhello"));
  }
  const testing::HttpPeer slow(port());
  slow.Send(Head("Content-Length: 4"));
  slow.Send("to");
  EXPECT_THAT(testing::Get(port(), "/"), EndsWith("hello")) << "others wait for a body";
  EXPECT_EQ(Requests().size(), 4u);
  slow.Send("ken of the next request");
  EXPECT_THAT(slow.ReadAll(), EndsWith("\r\n\r\nhello"));
  const std::vector<HttpRequest> requests = Requests();
  ASSERT_EQ(requests.size(), 5u);
  EXPECT_EQ(requests[0].body, "");
  EXPECT_EQ(requests[1].body, std::string("a\0=b&", 5));
  EXPECT_EQ(requests[2].body, most);
  EXPECT_EQ(requests[3].method, "GET");
  EXPECT_EQ(requests[4].body, "toke");
  EXPECT_EQ(requests[4].method, "POST");
  EXPECT_EQ(requests[4].path, "/a");
  EXPECT_EQ(requests[4].query.at("b"), "c");
  EXPECT_FALSE(requests[4].tls);
  EXPECT_FALSE(requests[4].certified);
  EXPECT_EQ(requests[4].peer, std::string("\x7f\0\0\x01", 4));
}

// By what the headers say: nothing of the body has been sent.
TEST_F(HttpPostTest, ABodyThatIsTooLargeIsNotReadAtAll) {
  for (const char* length : {"5001", "1000000000", "18446744073709551615"}) {
    EXPECT_THAT(Answer(port(), Head(absl::StrCat("Content-Length: ", length))),
                StartsWith("HTTP/1.1 413 "))
        << length;
  }
  EXPECT_TRUE(Requests().empty());
}

TEST_F(HttpPostTest, ABodyWhoseSizeIsNotSaidIsRefused) {
  EXPECT_THAT(Answer(port(), Head("X: y")), StartsWith("HTTP/1.1 411 "));
  const std::string chunks = "3\r\nabc\r\n0\r\n\r\n";
  EXPECT_THAT(Answer(port(), Head("Transfer-Encoding: chunked") + chunks),
              StartsWith("HTTP/1.1 411 "));
  EXPECT_THAT(Answer(port(), Head("Content-Length: 3\r\nTransfer-Encoding: chunked") + chunks),
              StartsWith("HTTP/1.1 4"));
  for (const char* length : {"-1", "x", "0x10", "99999999999999999999999"}) {
    EXPECT_THAT(Answer(port(), Head(absl::StrCat("Content-Length: ", length))),
                StartsWith("HTTP/1.1 4"))
        << length;
  }
  EXPECT_TRUE(Requests().empty());
}

TEST_F(HttpPostTest, NothingElseHasABodyAndNothingElseIsAllowed) {
  EXPECT_THAT(Answer(port(), "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"),
              StartsWith("HTTP/1.1 400 "));
  for (const char* method : {"PUT", "DELETE", "OPTIONS", "post"}) {
    const std::string answer =
        Answer(port(), absl::StrCat(method, " / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"));
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 405 ")) << method;
    EXPECT_THAT(answer, HasSubstr("\r\nAllow: GET, HEAD, POST\r\n"));
  }
  EXPECT_TRUE(Requests().empty());
}

// They count as those whose request is not complete, and lose their places to others.
TEST_F(HttpPostTest, WhoHoldsABodyBackIsInNobodysWay) {
  const auto peers = testing::HttpPeers(int(kMostConnectionsPerAddress), port(), "127.0.0.2");
  for (const testing::HttpPeer& peer : peers) {
    peer.Send(Head("Content-Length: 100"));
    peer.Send("x");
  }
  for (size_t i = 0; i < 2 * kMostConnectionsPerAddress; ++i) {
    EXPECT_THAT(testing::Get(port(), "/", "127.0.0.2"), EndsWith("hello"));
  }
  EXPECT_TRUE(testing::WaitUntil([&] { return peers[0].CutOff(); }));
  EXPECT_EQ(Requests().size(), 2 * kMostConnectionsPerAddress);
}

}  // namespace
}  // namespace trainyard
