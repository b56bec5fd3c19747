// Proves that with TLS the server answers those whose certificate its authorities have signed, that
// nothing of anybody else's reaches the handler, and that keys and authorities can be replaced
// while it serves.

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "absl/time/clock.h"
#include "common/http/server.h"
#include "tests/common/tls_client.h"

namespace trainyard {
namespace {

using ::testing::EndsWith;
using testing::GetWithTls;
using ::testing::HasSubstr;
using testing::TlsAnswer;

Identity Authority(const std::string& name) {
  return NewAuthority(name, absl::Now() - absl::Hours(48), absl::Now() + absl::Hours(48)).value();
}

enum class Use { kServer, kClient };

Identity Signed(const Identity& authority, Use use, absl::Duration until = absl::Hours(1)) {
  const std::string key = NewKey().value();
  const CertificateFacts facts = {.common_name = "somebody",
                                  .addresses = {"127.0.0.1"},
                                  .not_before = absl::Now() - absl::Hours(24),
                                  .not_after = absl::Now() + until,
                                  .server = use == Use::kServer,
                                  .client = use == Use::kClient};
  return {key, Sign(authority, NewRequest(key, "somebody").value(), facts).value()};
}

TlsMaterial Material(const Identity& server, const std::string& client_authorities) {
  return {.key = server.key_pem,
          .certificates = server.certificate_pem,
          .client_authorities = client_authorities};
}

class HttpTlsTest : public ::testing::Test {
 protected:
  HttpTlsTest()
      : server_(HttpServer::Start(
                    {.host = "127.0.0.1"},
                    [this](const HttpRequest&) -> HttpResponse {
                      ++handled_;
                      return {.body = "secret"};
                    },
                    {.tls = Material(Signed(authority_, Use::kServer), authority_.certificate_pem)})
                    .value()) {}
  int port() const { return server_->address().port; }
  TlsAnswer GetAs(const std::optional<Identity>& who, int version = 0) const {
    return GetWithTls(port(), {.authorities = authority_.certificate_pem + other_.certificate_pem,
                               .identity = who,
                               .version = version});
  }
  void ExpectRefused(const char* why, const std::optional<Identity>& who, int version = 0) const {
    const int before = handled_;
    EXPECT_EQ(GetAs(who, version).text, "") << why;
    EXPECT_EQ(handled_, before) << why << ": the request reached the handler";
  }

  const Identity authority_ = Authority("Authority");
  const Identity other_ = Authority("Authority");  // Of the same name, as an impostor's would be.
  const Identity client_ = Signed(authority_, Use::kClient);
  std::atomic<int> handled_ = 0;
  const std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpTlsTest, AClientOfTheAuthorityIsAnswered) {
  for (const auto& [version, name] : {std::pair(0, "TLSv1.3"), std::pair(TLS1_2_VERSION, "TLSv1.2"),
                                      std::pair(TLS1_3_VERSION, "TLSv1.3")}) {
    const TlsAnswer answer = GetAs(client_, version);
    EXPECT_THAT(answer.text, EndsWith("\r\n\r\nsecret"));
    EXPECT_EQ(answer.version, name);
  }
  EXPECT_EQ(handled_, 3);
}

TEST_F(HttpTlsTest, NobodyElseReachesTheHandler) {
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    SCOPED_TRACE(version);
    ExpectRefused("no certificate", std::nullopt, version);
    ExpectRefused("another authority's", Signed(other_, Use::kClient), version);
    ExpectRefused("expired", Signed(authority_, Use::kClient, -absl::Hours(1)), version);
    ExpectRefused("for servers", Signed(authority_, Use::kServer), version);
    ExpectRefused("signs itself", other_, version);
  }
  EXPECT_THAT(GetAs(client_).text, EndsWith("secret"));
}

TEST_F(HttpTlsTest, OldVersionsAreRefused) {
  ExpectRefused("TLS 1.1", client_, TLS1_1_VERSION);
  ExpectRefused("TLS 1.0", client_, TLS1_VERSION);
}

// A server whose clients need no certificate, and which tells those that have one.
TEST_F(HttpTlsTest, ACertificateThatIsOnlyRequestedIsSeenAndABadOneIsRefused) {
  const auto server =
      HttpServer::Start(
          {.host = "127.0.0.1"},
          [](const HttpRequest& request) -> HttpResponse {
            EXPECT_TRUE(request.tls);
            return {.body = request.certified ? "certified" : "nobody"};
          },
          {.tls = Material(Signed(authority_, Use::kServer), authority_.certificate_pem),
           .certificate = ClientCertificate::kRequested})
          .value();
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    SCOPED_TRACE(version);
    const auto as = [&](const std::optional<Identity>& who) {
      return GetWithTls(
                 server->address().port,
                 {.authorities = authority_.certificate_pem, .identity = who, .version = version})
          .text;
    };
    EXPECT_THAT(as(client_), EndsWith("\r\n\r\ncertified"));
    EXPECT_THAT(as(std::nullopt), EndsWith("\r\n\r\nnobody"));
    EXPECT_EQ(as(Signed(other_, Use::kClient)), "") << "another authority's";
    EXPECT_EQ(as(Signed(authority_, Use::kClient, -absl::Hours(1))), "") << "expired";
    EXPECT_EQ(as(Signed(authority_, Use::kServer)), "") << "for servers";
    EXPECT_EQ(as(other_), "") << "signs itself";
  }
}

TEST_F(HttpTlsTest, PlainTextGetsNothing) {
  EXPECT_THAT(testing::Get(port(), "/"), ::testing::Not(HasSubstr("HTTP/1")));
  EXPECT_EQ(handled_, 0);
  EXPECT_THAT(GetAs(client_).text, EndsWith("secret"));
}

TEST_F(HttpTlsTest, WhoDoesNotFinishItsHandshakeIsCutOffAndDelaysNobody) {
  const auto peers = testing::HttpPeers(100, port(), "127.0.0.2");
  for (const testing::HttpPeer& peer : peers) peer.Send("\x16\x03\x01\x02");
  const absl::Time begin = absl::Now();
  EXPECT_THAT(GetAs(client_).text, EndsWith("secret"));
  EXPECT_LT(absl::Now() - begin, kRequestWithin);
  absl::Time next = begin;
  EXPECT_TRUE(testing::WaitUntil([&] {
    if (absl::Now() >= next) {
      for (const testing::HttpPeer& peer : peers) peer.Send(absl::string_view("\0", 1));
      next += absl::Seconds(1);
    }
    return std::all_of(peers.begin(), peers.end(),
                       [](const testing::HttpPeer& peer) { return peer.CutOff(); });
  }));
  EXPECT_EQ(handled_, 1);
}

// The client is one for both, as while the authority of the servers is replaced by its successor.
TEST_F(HttpTlsTest, RotationFailsNoRequest) {
  const Identity successor = Authority("Successor");
  const TlsMaterial old_material =
      Material(Signed(authority_, Use::kServer), authority_.certificate_pem);
  const TlsMaterial new_material =
      Material(Signed(successor, Use::kServer), authority_.certificate_pem);
  std::atomic<bool> stop = false;
  std::atomic<int> by_old = 0, by_new = 0, failed = 0;
  std::vector<std::thread> readers;
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back([&] {
      while (!stop) {
        const TlsAnswer answer = GetWithTls(
            port(), {.authorities = authority_.certificate_pem + successor.certificate_pem,
                     .identity = client_});
        ++(answer.text.ends_with("secret") ? answer.server == "/CN=Successor" ? by_new : by_old
                                           : failed);
      }
    });
  }
  const auto both = [&] { return failed > 0 || (by_old >= 100 && by_new >= 100); };
  for (bool old = false; !both(); old = !old) {
    EXPECT_TRUE(server_->ReplaceTls(old ? old_material : new_material).ok());
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(failed, 0);
}

TEST_F(HttpTlsTest, RotationChangesWhoIsAnswered) {
  const Identity others_client = Signed(other_, Use::kClient);
  ExpectRefused("before", others_client);
  const Identity server = Signed(other_, Use::kServer);
  ASSERT_TRUE(server_->ReplaceTls(Material(server, other_.certificate_pem)).ok());
  EXPECT_THAT(GetAs(others_client).text, EndsWith("secret"));
  ExpectRefused("after", client_);
  ASSERT_TRUE(
      server_->ReplaceTls(Material(server, authority_.certificate_pem + other_.certificate_pem))
          .ok());
  EXPECT_THAT(GetAs(others_client).text, EndsWith("secret"));
  EXPECT_THAT(GetAs(client_).text, EndsWith("secret"));
}

TEST_F(HttpTlsTest, UnusableMaterialIsRefusedAndChangesNothing) {
  const Identity server = Signed(authority_, Use::kServer);
  const std::string& authorities = authority_.certificate_pem;
  const TlsMaterial bad[] = {
      {.key = "", .certificates = server.certificate_pem, .client_authorities = authorities},
      {.key = server.key_pem, .certificates = "", .client_authorities = authorities},
      {.key = server.key_pem, .certificates = server.certificate_pem, .client_authorities = ""},
      {.key = server.key_pem, .certificates = server.certificate_pem, .client_authorities = "x"},
      {.key = client_.key_pem,
       .certificates = server.certificate_pem,
       .client_authorities = authorities}};
  for (const TlsMaterial& material : bad) {
    EXPECT_EQ(server_->ReplaceTls(material).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(HttpServer::Start({.host = "127.0.0.1"}, nullptr, {.tls = material}).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_THAT(GetAs(client_).text, EndsWith("secret"));
  const auto plain = HttpServer::Start({.host = "127.0.0.1"}, nullptr);
  EXPECT_EQ((*plain)->ReplaceTls(Material(server, authorities)).code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace trainyard
