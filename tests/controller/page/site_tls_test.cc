// Proves what the page and the metrics beside it want of their readers where others than this
// machine reach them: /metrics a certificate, the page a token, and both TLS.

#include <gmock/gmock.h>

#include "common/http/metrics_page.h"
#include "tests/common/tls_client.h"
#include "tests/controller/page/reader.h"
#include "tests/controller/testing/tls_fixture.h"

namespace trainyard::controller {
namespace {

using testing::GetWithTls;
using ::testing::HasSubstr;
using ::testing::Not;

class SiteTlsTest : public TlsFixture {
 protected:
  SiteTlsTest() {
    page_ = MetricsPage::Serve(
                {"0.0.0.0", 0}, server_->registry(), *server_->access().PageTls(),
                [this](const HttpRequest& request) { return server_->site().Answer(request); })
                .value();
  }
  ~SiteTlsTest() override { page_.reset(); }
  // Empty status: no connection.
  Reply AskAs(const std::optional<Identity>& who, const std::string& request) const {
    return ParseReply(
        GetWithTls(page_->address().port,
                   {.authorities = Own().certificate(), .identity = who, .request = request})
            .text);
  }
  Identity ReaderOf(const Authority& authority, bool expired = false) const {
    CertificateFacts facts = WorkerFacts("w-1", "x");
    facts.uris = {"trainyard://reader/prometheus"};
    if (expired) facts.not_after = absl::Now() - absl::Minutes(1);
    return Signed(authority, facts).identity;
  }

  std::unique_ptr<MetricsPage> page_;
};

TEST_F(SiteTlsTest, MetricsStillDemandACertificateAndTakeNoToken) {
  const std::string token = Token(v1::ROLE_ADMIN);
  const std::string with =
      absl::StrCat("Cookie: __Host-trainyard=", token, "\r\nAuthorization: Bearer ", token, "\r\n");
  for (const std::string& headers : {std::string(), with}) {
    const Reply stranger = AskAs(std::nullopt, GetText("/metrics", headers));
    EXPECT_EQ(stranger.status, 403);
    EXPECT_THAT(stranger.body, Not(HasSubstr("trainyard_build_info")));
  }
  const Reply reader = AskAs(ReaderOf(Own()), GetText("/metrics"));
  EXPECT_EQ(reader.status, 200);
  EXPECT_THAT(reader.body, HasSubstr("trainyard_build_info"));
  EXPECT_EQ(AskAs(ReaderOf(Own()), PostText("/metrics", "a=b")).status, 405);
  EXPECT_EQ(AskAs(ReaderOf(Own(), true), GetText("/metrics")).status, 0) << "expired";
  const std::string directory = directory_.path() + "/other";
  ASSERT_TRUE(Authority::Init(directory, {"127.0.0.1"}, absl::Now()).ok());
  const Authority other = *Authority::Open(directory, absl::Now());
  EXPECT_EQ(AskAs(ReaderOf(other), GetText("/metrics")).status, 0) << "another authority's";
  EXPECT_EQ(AskAs(ReaderOf(other), GetText("/")).status, 0);
  EXPECT_THAT(testing::Answer(page_->address().port, GetText("/")), Not(HasSubstr("HTTP/1.1 ")))
      << "without TLS";
}

TEST_F(SiteTlsTest, ThePageWantsATokenAndNoCertificate) {
  const std::string token = Token(v1::ROLE_VIEWER);
  // A certificate is nobody's here: it opens metrics alone.
  for (const std::optional<Identity>& who : {std::optional<Identity>(), {ReaderOf(Own())}}) {
    const Reply form = AskAs(who, GetText("/"));
    EXPECT_EQ(form.status, 401);
    EXPECT_THAT(form.body, HasSubstr("action=\"/login\""));
  }
  const Reply in =
      AskAs(std::nullopt, PostText("/login", "token=" + token, "Origin: https://localhost:80\r\n"));
  EXPECT_EQ(in.status, 303);
  EXPECT_EQ(in.Header("set-cookie"), absl::StrCat("__Host-trainyard=", token,
                                                  "; Path=/; HttpOnly; SameSite=Strict; Secure"));
  const Reply page =
      AskAs(std::nullopt, GetText("/", absl::StrCat("Cookie: __Host-trainyard=", token, "\r\n")));
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.body, HasSubstr("<h1>Jobs</h1>"));
  // What somebody without TLS may have put into the browser does not count.
  EXPECT_EQ(AskAs(std::nullopt, GetText("/", CookieLine(token))).status, 401);
}

}  // namespace
}  // namespace trainyard::controller
