// Proves that the page says what is in the registry, in the form that Prometheus expects.

#include "common/http/metrics_page.h"

#include <gmock/gmock.h>
#include <prometheus/counter.h>
#include <prometheus/registry.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/common/http_peers.h"
#include "tests/common/tls_client.h"

namespace trainyard {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class MetricsPageTest : public ::testing::Test {
 protected:
  MetricsPageTest() : page_(MetricsPage::Serve({.host = "127.0.0.1"}, registry_, {}).value()) {}

  const std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  const std::unique_ptr<MetricsPage> page_;
};

TEST_F(MetricsPageTest, ServesTheRegistryAsItIsNow) {
  auto& counter =
      prometheus::BuildCounter().Name("eggs_total").Help("Eggs.").Register(*registry_).Add({});
  for (const char* value : {"1", "2"}) {
    counter.Increment();
    const std::string answer = testing::Get(page_->address().port, "/metrics?x=y");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(answer,
                HasSubstr("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    EXPECT_THAT(answer, EndsWith(absl::StrCat("\n# HELP eggs_total Eggs.\n"
                                              "# TYPE eggs_total counter\neggs_total ",
                                              value, "\n")));
  }
}

// Bug it must catch: a field of /proc/self/stat under its neighbour's name.
TEST_F(MetricsPageTest, SaysHowTheProgramItselfFares) {
  const std::string answer = testing::Get(page_->address().port, "/metrics");
  const auto value = [&](const std::string& name) {
    const size_t at = answer.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stod(answer.substr(at + name.size() + 2));
  };
  const double now = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  EXPECT_NEAR(value("process_start_time_seconds"), now, 300);
  EXPECT_GE(value("process_cpu_seconds_total"), 0);
  EXPECT_LT(value("process_cpu_seconds_total"), 300);
  EXPECT_GT(value("process_resident_memory_bytes"), 1 << 20);
  EXPECT_GE(value("process_virtual_memory_bytes"), value("process_resident_memory_bytes"));
  EXPECT_GE(value("process_open_fds"), 4);  // Three, and the page's own.
  EXPECT_GE(value("process_max_fds"), value("process_open_fds"));
}

TEST_F(MetricsPageTest, OtherPathsAreNotFoundAndNameTheRightOne) {
  for (const char* path : {"/", "/metrics/", "/metricsx", "/Metrics", "//metrics"}) {
    const std::string answer = testing::Get(page_->address().port, path);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 404 Not Found\r\n")) << path;
    EXPECT_THAT(answer, HasSubstr("/metrics\n"));
  }
}

// Bug it must catch: a page of another site reads the metrics through the browser of somebody on
// this machine, by a name of its own that leads to 127.0.0.1.
TEST_F(MetricsPageTest, AnotherHostIsRefused) {
  const int port = page_->address().port;
  const auto status = [&](const std::string& host) {
    const testing::HttpPeer peer(port);
    peer.Send(
        absl::StrCat("GET /metrics HTTP/1.1\r\nHost: ", host, "\r\nConnection: close\r\n\r\n"));
    return peer.ReadAll().substr(9, 3);
  };
  for (const char* host : {"127.0.0.1", "localhost", "[::1]", "127.0.0.2"}) {
    EXPECT_EQ(status(host), "200") << host;
    EXPECT_EQ(status(absl::StrCat(host, ":", port)), "200") << host;
  }
  for (const char* host :
       {"evil.example", "127.0.0.1.evil.example", "10.0.0.1", "localhost.", ""}) {
    EXPECT_EQ(status(host), "421") << host;
    EXPECT_EQ(status(absl::StrCat(host, ":", port)), "421") << host;
  }
}

TEST_F(MetricsPageTest, TheUrlHasTheRealPort) {
  EXPECT_NE(page_->address().port, 0);
  EXPECT_EQ(page_->url(), absl::StrCat("http://127.0.0.1:", page_->address().port, "/metrics"));
}

TEST(MetricsPage, AnAddressThatCannotBeListenedOnIsAnError) {
  const auto page =
      MetricsPage::Serve({.host = "127.256.0.1"}, std::make_shared<prometheus::Registry>(), {});
  EXPECT_EQ(page.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(page.status().message()),
              StartsWith("cannot serve metrics at 127.256.0.1:0: "));
}

// Where people read nothing beside it, as at a worker, a stranger does not even connect.
TEST(MetricsPage, OffLoopbackItIsForReadersWithACertificate) {
  const absl::Time now = absl::Now();
  const Identity authority = NewAuthority("a", now - absl::Hours(1), now + absl::Hours(1)).value();
  const auto signed_for = [&](bool server) {
    const std::string key = NewKey().value();
    const CertificateFacts facts = {.common_name = "x",
                                    .addresses = {"127.0.0.1"},
                                    .not_before = now - absl::Hours(1),
                                    .not_after = now + absl::Hours(1),
                                    .server = server,
                                    .client = !server};
    return Identity{key, Sign(authority, NewRequest(key, "x").value(), facts).value()};
  };
  const Identity server = signed_for(true);
  const auto page =
      MetricsPage::Serve({.host = "0.0.0.0"}, std::make_shared<prometheus::Registry>(),
                         TlsMaterial{.key = server.key_pem,
                                     .certificates = server.certificate_pem,
                                     .client_authorities = authority.certificate_pem})
          .value();
  testing::TlsClient client = {.authorities = authority.certificate_pem,
                               .request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"};
  EXPECT_EQ(testing::GetWithTls(page->address().port, client).text, "");
  client.identity = signed_for(false);
  EXPECT_THAT(testing::GetWithTls(page->address().port, client).text,
              StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST(MetricsPage, OffLoopbackWithoutACertificateItIsRefused) {
  const auto page =
      MetricsPage::Serve({.host = "0.0.0.0"}, std::make_shared<prometheus::Registry>(), {});
  EXPECT_EQ(page.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(page.status().message()), HasSubstr("0.0.0.0:0"));
}

}  // namespace
}  // namespace trainyard
