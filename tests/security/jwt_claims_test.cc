// Proves that of the tokens that the issuer signed only those are accepted that are for us, of now,
// and readable in one way.

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/security/jwt_issuer.h"

namespace trainyard {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::Jwt;
using testing::kNow;
using ::testing::Not;

TEST_F(Jwt, HeadersThatCouldBeReadTwoWaysAreRefused) {
  const std::string claims = Claims().dump();
  const auto refused = [&](const std::string& header, const std::string& words) {
    ExpectRefused(Verify(signer_.TokenOfTexts(header, claims)), words);
  };
  refused(R"({"alg":"none","alg":"ES256"})", "its header has a member twice");
  refused(R"({"alg":"ES256","x":{"y":1,"y":2}})", "its header has a member twice");
  refused(R"({"alg":"ES256","crit":["b64"],"b64":false})", "'crit'");
  refused(R"({"alg":"ES256","crit":[]})", "'crit'");
  refused(R"({"alg":["ES256"]})", "no 'alg'");
  refused(R"({})", "no 'alg'");
  refused(R"(["ES256"])", "not a JSON object");
  refused(R"({"alg":"ES256"} )"
          "\xff",
          "not a JSON object");
  refused("{\"alg\":\"ES256\xff\"}", "not a JSON object");
  refused(R"({"alg":"ES256"}{})", "not a JSON object");
  refused("", "not a JSON object");
  refused(R"({"alg":)" + std::string(5000, '['), "not a JSON object");
  ExpectRefused(
      Verify(signer_.TokenOfTexts(signer_.Header().dump(), R"({"iss":"a",)" + claims.substr(1))),
      "its payload has a member twice");
  ExpectRefused(Verify(signer_.TokenOfTexts(signer_.Header().dump(), "[]")), "not a JSON object");
  for (const char* text : {"", ".", "..", "...", "a.b", "a.b.c.d.e", "\0.\0.\0"}) {
    ExpectRefused(Verify(text), "");
  }
}

TEST_F(Jwt, LimitIs16KiB) {
  const auto of_size = [&](size_t padding) {
    return signer_.Token(signer_.Header(), With("padding", std::string(padding, 'x')));
  };
  EXPECT_TRUE(Verify(of_size(11'800)).ok());
  ASSERT_GT(of_size(12'200).size(), size_t{16 << 10});
  ExpectRefused(Verify(of_size(12'200)), "at most 16384");
}

TEST_F(Jwt, TimesAreKeptWithTheLeeway) {
  const int64_t now = absl::ToUnixSeconds(kNow);
  EXPECT_TRUE(VerifyClaims(With("exp", now - 29)).ok());
  ExpectRefused(VerifyClaims(With("exp", now - 30)), "it expired at");
  EXPECT_TRUE(VerifyClaims(With("exp", double(now) - 29.5)).ok());
  ExpectRefused(VerifyClaims(With("exp", 0)), "it expired at");
  ExpectRefused(VerifyClaims(With("exp", -1e300)), "it expired at");
  ExpectRefused(VerifyClaims(With("exp", 1e300)), "longer than 24h");
  ExpectRefused(VerifyClaims(Without("exp")), "no 'exp'");
  for (const json& bad : {json("1800000000"), json(nullptr), json(true), json::array({now + 99})}) {
    ExpectRefused(VerifyClaims(With("exp", bad)), "'exp' is not a number");
    ExpectRefused(VerifyClaims(With("nbf", bad)), "'nbf' is not a number");
    ExpectRefused(VerifyClaims(With("iat", bad)), "'iat' is not a number");
  }
  for (const char* name : {"nbf", "iat"}) {
    EXPECT_TRUE(VerifyClaims(With(name, now + 30)).ok());
    ExpectRefused(VerifyClaims(With(name, now + 31)), "it is valid from");
  }
  EXPECT_TRUE(VerifyClaims(Without("iat")).ok());
  policy_.leeway = absl::ZeroDuration();
  ExpectRefused(VerifyClaims(With("exp", now)), "it expired at");
  EXPECT_TRUE(VerifyClaims(With("exp", now + 1)).ok());
}

TEST_F(Jwt, TokensThatAreGoodForLongAreRefused) {
  const int64_t now = absl::ToUnixSeconds(kNow);
  policy_.longest = absl::Hours(1);
  const auto token = [&](int64_t issued, int64_t expires) {
    json claims = With("exp", now + expires);
    claims["iat"] = now + issued;
    return VerifyClaims(claims);
  };
  EXPECT_TRUE(token(-10, 3590).ok());
  ExpectRefused(token(-10, 3591), "longer than 1h");
  ExpectRefused(token(-86400, 60), "longer than 1h");  // Its last minute of a day.
  json claims = With("exp", now + 3600);
  claims.erase("iat");
  EXPECT_TRUE(VerifyClaims(claims).ok());
  claims["exp"] = now + 3601;
  ExpectRefused(VerifyClaims(claims), "longer than 1h");
}

TEST_F(Jwt, IssuerThatATokenNamesIsReadWithoutBelief) {
  EXPECT_EQ(*ClaimedIssuer(signer_.Token(signer_.Header(), With("iss", "anybody"))), "anybody");
  EXPECT_EQ(*ClaimedIssuer("x." + testing::Base64Url(R"({"iss":"anybody"})") + "."), "anybody");
  for (const std::string& text :
       {std::string(), std::string("x"), std::string("a.b"), std::string("a.!.c"),
        "x." + testing::Base64Url(R"({"iss":"a","iss":"b"})") + ".",
        "x." + testing::Base64Url(R"({"iss":7})") + ".", std::string(17 << 10, '.')}) {
    EXPECT_EQ(ClaimedIssuer(text).status().code(), absl::StatusCode::kUnauthenticated);
  }
}

TEST_F(Jwt, IssuerAndAudienceMustMatch) {
  for (const json& bad : {json("https://issuer.example.org/"), json("https://issuer.example.or"),
                          json(""), json(7), json::array({"https://issuer.example.org"})}) {
    ExpectRefused(VerifyClaims(With("iss", bad)), "it is not by");
  }
  ExpectRefused(VerifyClaims(Without("iss")), "it is not by");
  ExpectRefused(VerifyClaims(Without("aud")), "no 'aud'");
  for (const json& bad : {json("trainyard2"), json(""), json::array(), json::array({"a", "b"})}) {
    ExpectRefused(VerifyClaims(With("aud", bad)), "it is not for 'trainyard'");
  }
  for (const json& bad : {json(7), json(nullptr), json{{"trainyard", "trainyard"}},
                          json::array({"trainyard", 7}), json::array({{"trainyard"}})}) {
    ExpectRefused(VerifyClaims(With("aud", bad)), "neither a string nor an array");
  }
  EXPECT_TRUE(VerifyClaims(With("aud", {"another", "trainyard"})).ok());
}

TEST_F(Jwt, PolicyThatAllowsAnythingIsNone) {
  const auto refused = [&](auto change) {
    JwtPolicy policy = policy_;
    change(policy);
    const std::string token = signer_.Token(signer_.Header(), Claims());
    EXPECT_EQ(VerifyJwt(token, keys_, policy, kNow).status().code(),
              absl::StatusCode::kInvalidArgument);
  };
  refused([](JwtPolicy& p) { p.issuer.clear(); });
  refused([](JwtPolicy& p) { p.audience.clear(); });
  refused([](JwtPolicy& p) { p.algorithms.clear(); });
  refused([](JwtPolicy& p) { p.leeway = absl::Hours(1); });
  refused([](JwtPolicy& p) { p.leeway = absl::InfiniteDuration(); });
  refused([](JwtPolicy& p) { p.leeway = -absl::Seconds(1); });
  refused([](JwtPolicy& p) { p.longest = absl::ZeroDuration(); });
}

TEST_F(Jwt, MessagesDoNotQuoteTheToken) {
  json claims = With("exp", 0);
  claims["sub"] = "somebody";
  const std::string token = signer_.Token(signer_.Header(), claims);
  for (const std::string& text : {token, token.substr(1), token + "!"}) {
    const std::string message(Verify(text).status().message());
    EXPECT_THAT(message, Not(HasSubstr("somebody")));
    for (const absl::string_view part : absl::StrSplit(text, '.')) {
      EXPECT_FALSE(absl::StrContains(message, part.substr(0, 8))) << message;
    }
  }
}

}  // namespace
}  // namespace trainyard
