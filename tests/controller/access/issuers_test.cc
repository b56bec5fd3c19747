// Proves that an organisation's token gives the role that the rules say, and that no token gives
// more: unknown issuers, other keys, forged headers, and files that are wrong or gone.

#include "controller/access/issuers.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "common/files.h"
#include "tests/controller/testing/temp_directory.h"
#include "tests/security/jwt_signer.h"
#include "tests/testing/fake_clock.h"

namespace trainyard::controller {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using trainyard::testing::JwtSigner;

constexpr char kCorp[] = "https://login.example.org";
constexpr char kCluster[] = "https://kubernetes.default.svc";

constexpr char kRules[] = R"(
  - {claims: {groups: [ml-ops, sre], level: high}, role: admin}
  - {claims: {groups: [ml-ops, sre]}, role: operator}
  - {claims: {groups: research}, role: submitter, namespace: research}
  - {claims: {iss: "https://login.example.org", kind: person}, role: viewer}
)";

class IssuersTest : public ::testing::Test {
 protected:
  IssuersTest() {
    WriteKeys("corp.jwks", {corp_.Jwk()});
    WriteKeys("cluster.jwks", {cluster_.Jwk()});
    WriteIssuers(kRules);
  }

  std::string Path(const std::string& name) const { return directory_.path() + "/" + name; }
  void Write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomic(Path(name), text).ok());
    ASSERT_EQ(::chmod(Path(name).c_str(), 0644), 0);
  }
  void WriteKeys(const std::string& name, const std::vector<json>& keys) {
    Write(name, json{{"keys", keys}}.dump());
  }
  std::string Text(const std::string& rules) const {
    return absl::StrCat(
        "corp:\n  issuer: ", kCorp,
        "\n  audience: trainyard\n  algorithms: [RS256]\n  longest: 1h\n  keys: ",
        Path("corp.jwks"), "\n  rules:", rules, "k8s:\n  issuer: ", kCluster,
        "\n  audience: trainyard\n  algorithms: [ES256]\n  keys: ", Path("cluster.jwks"),
        "\n  rules:\n  - {claims: {sub: \"system:serviceaccount:train:worker\"}, "
        "role: joiner, hosts: \"gpu-*\"}\n");
  }
  void WriteIssuers(const std::string& rules) { Write("issuers.yaml", Text(rules)); }
  std::unique_ptr<Issuers> MustOpen() {
    auto issuers = Issuers::Open(Path("issuers.yaml"), clock_);
    EXPECT_TRUE(issuers.ok()) << issuers.status();
    return *std::move(issuers);
  }

  json Claims(const json& more) const {
    json claims{{"iss", kCorp},
                {"aud", "trainyard"},
                {"sub", "ada@example.org"},
                {"iat", absl::ToUnixSeconds(clock_.Now())},
                {"exp", absl::ToUnixSeconds(clock_.Now()) + 600}};
    claims.update(more);
    return claims;
  }
  std::string Token(const json& more) const { return corp_.Token(corp_.Header(), Claims(more)); }
  // "submitter research" or the beginning of the error.
  static std::string RoleIn(const Issuers& issuers, const std::string& token) {
    const auto principal = issuers.Authenticate(token);
    if (!principal.ok()) return absl::StatusCodeToString(principal.status().code());
    EXPECT_EQ(principal->roles.size(), 1U);
    return absl::StrCat(NameOf(*principal->roles.begin()), " ", principal->name_space);
  }
  void ExpectRefused(const Issuers& issuers, const std::string& token, const std::string& words) {
    const auto principal = issuers.Authenticate(token);
    EXPECT_TRUE(absl::IsUnauthenticated(principal.status())) << principal.status() << words;
    EXPECT_THAT(principal.status().ToString(), HasSubstr(words));
  }

  const TempDirectory directory_;
  FakeClock clock_;
  const JwtSigner corp_{"RS256"}, cluster_{"ES256"};
};

TEST_F(IssuersTest, TheFirstRuleThatAcceptsTheClaimsGivesTheRole) {
  const auto issuers = MustOpen();
  const auto role = [&](const json& more) { return RoleIn(*issuers, Token(more)); };
  EXPECT_EQ(role({{"groups", "research"}}), "submitter research");
  EXPECT_EQ(role({{"groups", {"x", "research"}}}), "submitter research");
  EXPECT_EQ(role({{"groups", {"research", "sre"}}}), "operator ");
  EXPECT_EQ(role({{"groups", "sre"}, {"level", "high"}}), "admin ");
  EXPECT_EQ(role({{"groups", "sre"}, {"level", "higher"}}), "operator ");
  EXPECT_EQ(role({{"kind", "person"}}), "viewer default");
  for (const json& groups :
       {json("researchers"), json(""), json(7), json(nullptr), json{{"research", "research"}},
        json::array(), json::array({json::array({"research"})}), json("[research]")}) {
    EXPECT_EQ(role({{"groups", groups}}), "PERMISSION_DENIED") << groups;
  }
}

TEST_F(IssuersTest, APrincipalIsNamedByItsIssuerAndEndsWithItsToken) {
  const auto ada = MustOpen()->Authenticate(Token({{"groups", "research"}}));
  ASSERT_TRUE(ada.ok()) << ada.status();
  EXPECT_EQ(ada->name, "corp:ada@example.org");
  EXPECT_EQ(ada->grant_id, "");
  EXPECT_FALSE(ada->local);
  EXPECT_EQ(ada->expires, clock_.Now() + absl::Minutes(10));
  const json claims = Claims({{"iss", kCluster}, {"sub", "system:serviceaccount:train:worker"}});
  const auto pod = MustOpen()->Authenticate(cluster_.Token(cluster_.Header(), claims));
  ASSERT_TRUE(pod.ok()) << pod.status();
  EXPECT_THAT(pod->roles, ElementsAre(v1::ROLE_JOINER));
  EXPECT_EQ(pod->name, "k8s:system:serviceaccount:train:worker");
  EXPECT_EQ(pod->hosts, "gpu-*");
}

TEST_F(IssuersTest, WhoHasNoRoleHearsWhichClaimsWereLookedAt) {
  const std::string token = Token({{"groups", "guests"}, {"secret", "hush"}});
  const auto nobody = MustOpen()->Authenticate(token);
  EXPECT_TRUE(absl::IsPermissionDenied(nobody.status()));
  const std::string said(nobody.status().message());
  EXPECT_THAT(said, HasSubstr("groups, iss, kind, level"));
  for (const std::string& kept : {token, token.substr(0, 20), std::string("guests"),
                                  std::string("secret"), std::string("hush")}) {
    EXPECT_THAT(said, Not(HasSubstr(kept)));
  }
}

// What holds of every token stands in tests/security/jwt_test.cc; this is how issuers differ.
TEST_F(IssuersTest, AnIssuersKeysAlgorithmsAndNamesAreItsOwn) {
  const auto issuers = MustOpen();
  const json ada = Claims({{"groups", "sre"}});
  ExpectRefused(*issuers, cluster_.Token(cluster_.Header(), ada), "algorithm");
  json header = corp_.Header();
  header["kid"] = "ES256-key";  // A key of the other issuer.
  ExpectRefused(*issuers, corp_.Token(header, ada), "JWKS does not have");
  const JwtSigner thief("RS256");  // With the kid of the right key.
  ExpectRefused(*issuers, thief.Token(thief.Header(), ada), "signature is wrong");
  ExpectRefused(*issuers, Token({{"iss", kCluster}}), "algorithm");
  ExpectRefused(*issuers, Token({{"iss", "https://login.example.org/"}}),
                "no keys of the token's issuer");
  ExpectRefused(*issuers, Token({{"iss", json::array({kCorp})}}), "no 'iss'");
  ExpectRefused(*issuers, Token({{"aud", "another"}}), "not for 'trainyard'");
  // The public key as the secret of an HMAC, and no signature at all.
  const json hs{{"alg", "HS256"}, {"kid", "RS256-key"}};
  const std::string text = absl::StrCat(trainyard::testing::Base64Url(hs.dump()), ".",
                                        trainyard::testing::Base64Url(ada.dump()));
  ExpectRefused(*issuers,
                absl::StrCat(text, ".",
                             trainyard::testing::Base64Url(
                                 trainyard::testing::HmacSha256(corp_.PublicPem(), text))),
                "algorithm");
  ExpectRefused(*issuers,
                absl::StrCat(trainyard::testing::Base64Url(R"({"alg":"none"})"), ".",
                             trainyard::testing::Base64Url(ada.dump()), "."),
                "algorithm");
}

TEST_F(IssuersTest, FormsThatCouldBeReadTwoWaysAreRefused) {
  const auto issuers = MustOpen();
  const std::string ada = Claims({{"groups", "research"}}).dump();
  const std::string header = corp_.Header().dump();
  ASSERT_EQ(RoleIn(*issuers, corp_.TokenOfTexts(header, ada)), "submitter research");
  ExpectRefused(*issuers, corp_.TokenOfTexts(header, R"({"groups":"sre",)" + ada.substr(1)),
                "a member twice");
  ExpectRefused(*issuers, corp_.TokenOfTexts(R"({"alg":"none",)" + header.substr(1), ada),
                "a member twice");
  ExpectRefused(*issuers, corp_.TokenOfTexts(R"({"crit":["exp"],)" + header.substr(1), ada),
                "'crit'");
  ExpectRefused(*issuers, Token({{"groups", "research"}, {"x", std::string(16 << 10, 'x')}}),
                "at most 16384");
  for (const char* text : {".", "..", "a.b.c", "a.b.c.d"}) ExpectRefused(*issuers, text, "");
  for (const json& subject : {json(""), json("a b"), json("a\nb"), json("\xc3\xa4"), json(7),
                              json(std::string(256, 'a')), json(nullptr)}) {
    ExpectRefused(*issuers, Token({{"groups", "research"}, {"sub", subject}}), "'sub'");
  }
}

TEST_F(IssuersTest, TimesHoldWithAMinuteToSpareAndNoTokenIsGoodForLong) {
  const auto issuers = MustOpen();
  const int64_t now = absl::ToUnixSeconds(clock_.Now());
  const auto role = [&](int64_t issued, int64_t expires) {
    return RoleIn(*issuers,
                  Token({{"groups", "sre"}, {"iat", now + issued}, {"exp", now + expires}}));
  };
  EXPECT_EQ(role(-600, -59), "operator ");
  EXPECT_EQ(role(-600, -60), "UNAUTHENTICATED");
  EXPECT_EQ(role(60, 600), "operator ");
  EXPECT_EQ(role(61, 600), "UNAUTHENTICATED");
  EXPECT_EQ(role(-60, 3540), "operator ");
  EXPECT_EQ(role(-60, 3541), "UNAUTHENTICATED") << "good for more than an hour";
  json claims = Claims({{"groups", "sre"}, {"exp", now + 3601}});
  claims.erase("iat");
  ExpectRefused(*issuers, corp_.Token(corp_.Header(), claims), "longer than 1h");
  clock_.Advance(absl::Minutes(12));
  EXPECT_EQ(role(-3000, -100), "UNAUTHENTICATED");
}

TEST_F(IssuersTest, WhatChangesInTheFilesCountsAndAMistakeDoesNot) {
  const auto issuers = MustOpen();
  const std::string ada = Token({{"groups", "sre"}});
  const auto now = [&] {
    issuers->Refresh();
    return RoleIn(*issuers, ada);
  };
  EXPECT_EQ(now(), "operator ");
  Write("issuers.yaml", "corp: {issuer: }}");
  EXPECT_EQ(now(), "operator ") << "a mistake throws nobody out";
  WriteIssuers("\n  - {claims: {groups: sre}, role: viewer, namespace: x}\n");
  EXPECT_EQ(now(), "viewer x");
  // A rule that is removed counts, whatever is wrong with keys.
  Write("corp.jwks", "{}");
  WriteIssuers("\n  - {claims: {groups: research}, role: viewer}\n");
  EXPECT_EQ(now(), "PERMISSION_DENIED");
  WriteIssuers(kRules);
  EXPECT_EQ(now(), "operator ") << "its keys are as they were";
  const JwtSigner next("RS256");
  json jwk = next.Jwk();
  jwk["kid"] = "next";
  WriteKeys("corp.jwks", {corp_.Jwk(), jwk});
  EXPECT_EQ(now(), "operator ");
  const std::string newer =
      next.Token({{"alg", "RS256"}, {"kid", "next"}}, Claims({{"groups", "sre"}}));
  EXPECT_EQ(RoleIn(*issuers, newer), "operator ");
  WriteKeys("corp.jwks", {jwk});
  EXPECT_EQ(now(), "UNAUTHENTICATED") << "its key was withdrawn";
  EXPECT_EQ(RoleIn(*issuers, newer), "operator ");
  ASSERT_EQ(::unlink(Path("issuers.yaml").c_str()), 0);
  issuers->Refresh();
  EXPECT_EQ(RoleIn(*issuers, newer), "operator ");
  Write("issuers.yaml", "{}");
  issuers->Refresh();
  EXPECT_EQ(RoleIn(*issuers, newer), "UNAUTHENTICATED");
}

// Bug it must catch: an issuer that takes the place of another one gets that one's keys.
TEST_F(IssuersTest, KeysAreNeverLentToAnotherIssuer) {
  const auto issuers = MustOpen();
  Write("corp.jwks", "");
  std::string text = Text(kRules);
  text.replace(text.find(kCorp), sizeof(kCorp) - 1, "https://other.example.org");
  Write("issuers.yaml", text);
  issuers->Refresh();
  ExpectRefused(*issuers, Token({{"iss", "https://other.example.org"}, {"groups", "sre"}}),
                "has no keys of");
}

TEST_F(IssuersTest, WhatIsWrongIsNamed) {
  const std::string good = Text("\n  - {claims: {groups: sre}, role: viewer}\n");
  ASSERT_TRUE(ParseIssuers(good).ok()) << ParseIssuers(good).status();
  const auto expect = [&](const std::string& before, const std::string& after,
                          const std::string& words) {
    std::string text = good;
    const size_t at = text.find(before);
    ASSERT_NE(at, text.npos) << before;
    text.replace(at, before.size(), after);
    const auto parsed = ParseIssuers(text);
    EXPECT_TRUE(absl::IsInvalidArgument(parsed.status())) << after;
    EXPECT_THAT(parsed.status().ToString(), HasSubstr(words)) << after;
  };
  for (const char* algorithm : {"none", "HS256", "RS512", "rs256", ""}) {
    expect("[RS256]", absl::StrCat("[", algorithm, "]"), "algorithms");
    expect("[RS256]", absl::StrCat("[RS256, '", algorithm, "']"), "algorithms");
  }
  expect("corp:", "\"corp \":", "letters");
  expect(kCorp, kCluster, "k8s.issuer");
  expect("audience: trainyard", "audience: []", "corp.audience");
  expect("audience: trainyard\n", "audience: x\n  audiences: y\n", "corp.audiences");
  expect(Path("corp.jwks"), "https://login.example.org/jwks", "absolute path of a file");
  expect("longest: 1h", "longest: long", "corp.longest");
  expect("longest: 1h", "longest: -1h", "more than 0");
  expect("{groups: sre}", "{}", "corp.rules[0].claims");
  expect("claims: {groups: sre}, ", "", "corp.rules[0].claims");
  expect("{groups: sre}", "{groups: []}", "texts for groups");
  expect("{groups: sre}", "{groups: {a: b}}", "texts for groups");
  expect("{groups: sre}", "{groups: [[sre]]}", "texts for groups");
  expect("role: viewer", "role: worker", "corp.rules[0].role");
  expect("role: viewer", "role: VIEWER", "corp.rules[0].role");
  expect("role: viewer", "namespace: x", "corp.rules[0].role");
  expect("role: viewer", "role: admin, namespace: x", "corp.rules[0].namespace");
  expect("role: viewer", "role: viewer, namespace: 'x y'", "corp.rules[0].namespace");
  expect("role: viewer", "role: viewer, hosts: gpu-*", "corp.rules[0].hosts");
  expect("role: viewer", "role: viewer, uses: 3", "corp.rules[0].uses");
  // A variable of a template that had no value must not open what the field narrows.
  for (const char* empty : {"", "''", "~"}) {
    expect("longest: 1h", absl::StrCat("longest: ", empty), "corp.longest");
    expect("hosts: \"gpu-*\"", absl::StrCat("hosts: ", empty), "k8s.rules[0].hosts");
    expect("role: viewer", absl::StrCat("role: viewer, namespace: ", empty),
           "corp.rules[0].namespace");
  }
  expect("role: viewer", "role: viewer, lr: 3", "known here");
  EXPECT_FALSE(ParseIssuers("[corp]").ok());
  EXPECT_FALSE(ParseIssuers("corp: 3").ok());
}

TEST_F(IssuersTest, FilesThatOthersMayWriteAreNotBelieved) {
  for (const char* name : {"issuers.yaml", "corp.jwks"}) {
    for (const mode_t mode : {0664, 0646}) {
      ASSERT_EQ(::chmod(Path(name).c_str(), mode), 0);
      const auto issuers = Issuers::Open(Path("issuers.yaml"), clock_);
      EXPECT_TRUE(absl::IsFailedPrecondition(issuers.status())) << issuers.status();
      EXPECT_THAT(issuers.status().ToString(), HasSubstr("chmod go-w"));
    }
    ASSERT_EQ(::chmod(Path(name).c_str(), 0444), 0);
    EXPECT_TRUE(Issuers::Open(Path("issuers.yaml"), clock_).ok());
  }
  ASSERT_EQ(::unlink(Path("corp.jwks").c_str()), 0);
  EXPECT_TRUE(absl::IsNotFound(Issuers::Open(Path("issuers.yaml"), clock_).status()));
}

TEST(Issuers, WithoutAFileThereAreNone) {
  FakeClock clock;
  const auto issuers = *Issuers::Open("", clock);
  EXPECT_TRUE(absl::IsUnauthenticated(issuers->Authenticate("e30.e30.e30").status()));
  issuers->Refresh();
}

}  // namespace
}  // namespace trainyard::controller
