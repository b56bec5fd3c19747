// Proves what the server says to requests of every kind, well formed and not.

#include <gmock/gmock.h>

#include "absl/strings/match.h"
#include "common/http/server.h"
#include "tests/common/http_peers.h"

namespace trainyard {
namespace {

using testing::Answer;
using ::testing::EndsWith;
using testing::Get;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class HttpServerTest : public ::testing::Test {
 protected:
  HttpServerTest()
      : server_(HttpServer::Start({.host = "127.0.0.1"}, [this](const HttpRequest& request) {
                  const MutexLock lock(mutex_);
                  requests_.push_back(request);
                  return response_;
                }).value()) {}
  int port() const { return server_->address().port; }
  std::vector<HttpRequest> Requests() {
    const MutexLock lock(mutex_);
    return requests_;
  }
  void Respond(const HttpResponse& response) {
    const MutexLock lock(mutex_);
    response_ = response;
  }

 private:
  Mutex mutex_;
  HttpResponse response_ ABSL_GUARDED_BY(mutex_) = {.body = "hello"};
  std::vector<HttpRequest> requests_ ABSL_GUARDED_BY(mutex_);

 protected:
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, TheHandlerSeesTheRequestAndTheClientTheResponse) {
  Respond({.status = 404,
           .content_type = "text/html",
           .body = std::string("a\0b", 3),
           .headers = {{"Retry-After", "7"}}});
  const std::string answer = Answer(
      port(), "GET /a%20b/c?x=1%202&y&x=3 HTTP/1.1\r\nHost: here\r\nAccept-Encoding: gzip\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 404 Not Found\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Type: text/html\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nRetry-After: 7\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Length: 3\r\n"));
  EXPECT_THAT(answer, EndsWith(std::string("\r\n\r\na\0b", 7)));
  const std::vector<HttpRequest> requests = Requests();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].method, "GET");
  EXPECT_EQ(requests[0].path, "/a b/c");
  EXPECT_EQ(requests[0].query, (std::map<std::string, std::string>{{"x", "1 2"}, {"y", ""}}));
  EXPECT_EQ(requests[0].headers.at("host"), "here");
  EXPECT_EQ(requests[0].headers.at("accept-encoding"), "gzip");
}

TEST_F(HttpServerTest, HeadGetsTheLengthAndNoBody) {
  const std::string answer = Answer(port(), "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Length: 5\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n"));
  const std::vector<HttpRequest> requests = Requests();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].method, "HEAD");
}

TEST_F(HttpServerTest, OtherMethodsAreNotAllowed) {
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "get", "NONSENSE"}) {
    SCOPED_TRACE(method);
    const std::string answer =
        Answer(port(), absl::StrCat(method, " / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"));
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 405 Method Not Allowed\r\n"));
    EXPECT_THAT(answer, HasSubstr("\r\nAllow: GET, HEAD\r\n"));
  }
  EXPECT_TRUE(Requests().empty());
}

TEST_F(HttpServerTest, RequestsWithABodyAreRefused) {
  for (const char* body :
       {"Content-Length: 3\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "Content-Length: 1000000000\r\n\r\n"}) {
    const std::string answer = Answer(port(), absl::StrCat("GET / HTTP/1.1\r\nHost: x\r\n", body));
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 Bad Request\r\n")) << body;
  }
  EXPECT_TRUE(Requests().empty());
}

// Each request is a connection of its own: what follows the first is not read.
TEST_F(HttpServerTest, TheConnectionEndsWithTheAnswer) {
  const std::string request = "GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n";
  const std::string answer = Answer(port(), request + request);
  EXPECT_THAT(answer, HasSubstr("\r\nConnection: close\r\n"));
  EXPECT_THAT(answer, Not(HasSubstr("timeout")));
  EXPECT_EQ(Requests().size(), 1u);
}

TEST_F(HttpServerTest, HeadersThatAreTooLargeAreRefused) {
  const auto with_header = [&](size_t bytes) {
    return Answer(port(), absl::StrCat("GET / HTTP/1.1\r\nHost: x\r\nX: ", std::string(bytes, 'x'),
                                       "\r\n\r\n"));
  };
  EXPECT_THAT(with_header(kConnectionMemoryBytes / 2), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(with_header(kConnectionMemoryBytes), StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(Get(port(), absl::StrCat("/", std::string(kConnectionMemoryBytes, 'x'))),
              StartsWith("HTTP/1.1 414 "));
  EXPECT_EQ(Requests().size(), 1u);
}

TEST_F(HttpServerTest, WhatIsNoHttpIsRefused) {
  for (const char* words :
       {"hello\r\n\r\n", "GET /\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\n: x\r\n\r\n", "\x16\x03\x01\x02\r\n\r\n"}) {
    EXPECT_THAT(Answer(port(), words), Not(HasSubstr("200 OK"))) << words;
  }
  EXPECT_TRUE(Requests().empty());
  EXPECT_THAT(Get(port(), "/"), EndsWith("hello"));
}

TEST_F(HttpServerTest, ALargePageArrivesWhole) {
  const std::string page(20'000'000, 'x');
  Respond({.body = page});
  EXPECT_TRUE(absl::EndsWith(Get(port(), "/"), "\r\n\r\n" + page));
}

TEST_F(HttpServerTest, AnAddressThatIsTakenIsAnError) {
  const auto second = HttpServer::Start(server_->address(), nullptr);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(absl::StrCat("127.0.0.1:", port(), ": the port is taken")));
}

TEST_F(HttpServerTest, AServerThatHasEndedLeavesNothing) {
  const size_t before = testing::OpenDescriptors();
  const std::vector<testing::HttpPeer> open = testing::HttpPeers(3, port(), "127.0.0.1");
  const Address address = server_->address();
  server_.reset();
  EXPECT_TRUE(testing::WaitUntil([&] { return open[0].CutOff() && open[2].CutOff(); }));
  EXPECT_LT(testing::OpenDescriptors(), before + open.size());
  EXPECT_TRUE(HttpServer::Start(address, nullptr).ok());
}

}  // namespace
}  // namespace trainyard
