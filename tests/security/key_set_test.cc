// Proves which keys of a JWKS are used, and that base64url and JSON have one reading.

#include "security/key_set.h"

#include <gmock/gmock.h>
#include <openssl/err.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "security/strict_json.h"
#include "tests/security/jwt_signer.h"

namespace trainyard {
namespace {

using nlohmann::json;
using testing::Base64Url;
using ::testing::HasSubstr;
using testing::JwtSigner;

class Jwks : public ::testing::Test {
 protected:
  ~Jwks() override { EXPECT_EQ(ERR_peek_error(), 0u); }

  static void ExpectInvalid(const absl::Status& status, const std::string& words) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status << ": " << words;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  }
  static absl::Status Parse(const json& jwk) {
    return KeySet::Parse(json{{"keys", {jwk}}}.dump()).status();
  }
  static json With(json jwk, const char* name, const json& value) {
    jwk[name] = value;
    return jwk;
  }

  const JwtSigner signer_{"ES256"};
  const json jwk_ = signer_.Jwk();
};

TEST_F(Jwks, KeysThatCannotVerifyAreLeftOut) {
  for (const json& unfit :
       {With(jwk_, "use", "enc"), With(jwk_, "alg", "HS256"), With(jwk_, "alg", "ES384"),
        With(jwk_, "alg", 7), With(jwk_, "key_ops", json::array({"sign"})),
        With(jwk_, "key_ops", json::array()), With(jwk_, "crv", "P-384"),
        With(jwk_, "crv", "secp256k1"), With(jwk_, "kty", "RSA"), With(jwk_, "kty", "OKP"),
        With(jwk_, "kty", "oct"), With(jwk_, "kty", 1), With(jwk_, "kid", 1),
        json{{"kty", "oct"}, {"k", "c2VjcmV0"}, {"alg", "HS256"}}, json::object()}) {
    ExpectInvalid(Parse(unfit), "no key for RS256, ES256 or EdDSA");
    const auto beside = KeySet::Parse(json{{"keys", {unfit, jwk_}}}.dump());
    ASSERT_TRUE(beside.ok()) << beside.status();
    EXPECT_EQ(beside->size(), 1u);
  }
  EXPECT_TRUE(Parse(With(jwk_, "key_ops", json::array({"verify"}))).ok());
  EXPECT_TRUE(Parse(With(jwk_, "x5t", "ignored")).ok());
}

TEST_F(Jwks, NumbersThatAreNoKeyAreLeftOut) {
  const auto coordinate = [&](const char* name) {
    std::string bytes;
    absl::WebSafeBase64Unescape(jwk_[name].get<std::string>(), &bytes);
    return bytes;
  };
  const std::string x = coordinate("x");
  std::string off_curve = x;
  off_curve[31] = char(off_curve[31] ^ 1);
  for (const std::string& bad : {off_curve, x.substr(1), x + "x", std::string(1, '\0') + x,
                                 std::string(32, '\0'), std::string(32, '\xff'), std::string()}) {
    ExpectInvalid(Parse(With(jwk_, "x", Base64Url(bad))), "no key");
  }
  ExpectInvalid(Parse(With(jwk_, "x", jwk_["x"].get<std::string>() + "=")), "base64url");
  ExpectInvalid(Parse(With(jwk_, "x", 7)), "'x' is missing");
  const json ed25519 = JwtSigner("EdDSA").Jwk();
  EXPECT_TRUE(Parse(ed25519).ok());
  for (const size_t size : {0, 1, 31, 33}) {
    ExpectInvalid(Parse(With(ed25519, "x", Base64Url(std::string(size, 'x')))), "no key");
  }
}

TEST_F(Jwks, WeakRsaKeysAreLeftOut) {
  const json strong = JwtSigner("RS256").Jwk();
  EXPECT_TRUE(Parse(strong).ok());
  ExpectInvalid(Parse(JwtSigner("RS256", 1024).Jwk()), "RSA of 1024 bits");
  ExpectInvalid(Parse(With(strong, "n", Base64Url(std::string(2000, '\xff')))), "16000 bits");
  for (const std::string& exponent :
       {std::string("\1"), std::string("\2"), std::string("\0", 1), std::string(9, '\xff')}) {
    ExpectInvalid(Parse(With(strong, "e", Base64Url(exponent))), "odd RSA exponent");
  }
}

TEST_F(Jwks, PrivateKeysAreReported) {
  ExpectInvalid(Parse(With(jwk_, "d", "AAAA")), "holds a private key");
}

TEST_F(Jwks, TextsThatAreNoJwksAreRefused) {
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("[]"), std::string("{\"keys\":{}}"),
        std::string("{\"keys\":7}"), std::string("{\"keys\":[7]}"), std::string("{\"keys\":[]}"),
        std::string("{\"keys\":[],\"keys\":[]}"), std::string(100'000, '['), jwk_.dump()}) {
    ExpectInvalid(KeySet::Parse(text).status(), "");
  }
  const std::string good = json{{"keys", {jwk_}}}.dump();
  ExpectInvalid(KeySet::Parse(good + std::string(256 << 10, ' ')).status(), "262144 bytes");
  json many = json::array();
  for (int i = 0; i < 101; ++i) many.push_back(jwk_);
  ExpectInvalid(KeySet::Parse(json{{"keys", many}}.dump()).status(), "at most 100 keys");
  for (size_t i = 0; i < good.size(); ++i) {
    (void)KeySet::Parse(good.substr(0, i));
    std::string flipped = good;
    flipped[i] = char(flipped[i] ^ (1 << (i % 8)));
    (void)KeySet::Parse(flipped);
  }
}

TEST(Base64Url, DecodesWhatOthersEncode) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(DecodeBase64Url(Base64Url(bytes)).value_or("refused"), bytes);
    bytes.push_back(char(i * 37));
  }
}

TEST(Base64Url, EachValueHasOneSpelling) {
  for (const std::string& bad :
       {std::string("A"), std::string("AAAAA"), std::string("AA=="), std::string("AA+A"),
        std::string("AA/A"), std::string("AA A"), std::string("AAAA\n"), std::string("AB"),
        std::string("AAB"), std::string("\0\0\0\0", 4), std::string("\xff\xff")}) {
    EXPECT_FALSE(DecodeBase64Url(bad).ok()) << bad;
  }
  // Of all texts of two and of three characters as many are accepted as there are values.
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  int two = 0, three = 0;
  for (const char a : digits) {
    for (const char b : digits) {
      two += DecodeBase64Url(std::string{a, b}).ok() ? 1 : 0;
      for (const char c : digits) three += DecodeBase64Url(std::string{a, b, c}).ok() ? 1 : 0;
    }
  }
  EXPECT_EQ(two, 1 << 8);
  EXPECT_EQ(three, 1 << 16);
}

TEST(StrictJson, MembersOfDifferentObjectsMayHaveOneName) {
  EXPECT_TRUE(ParseStrictJson(R"({"a":{"a":1},"b":[{"a":1},{"a":2}]})", "it").ok());
  for (const char* twice : {R"({"a":1,"a":1})", R"({"a":1,"\u0061":2})", R"({"b":[{"a":1,"a":2}]})",
                            R"({"a":{"b":{}},"c":1,"a":2})"}) {
    EXPECT_FALSE(ParseStrictJson(twice, "it").ok()) << twice;
  }
}

}  // namespace
}  // namespace trainyard
