// Proves that a token's signature is checked: those of the RFCs and those of a signer of our own
// verify, and none that differs in one bit, in its algorithm or in its key.

#include "absl/strings/str_cat.h"
#include "tests/security/jwt_issuer.h"

namespace trainyard {
namespace {

using nlohmann::json;
using testing::Base64Url;
using ::testing::HasSubstr;
using testing::Jwt;
using testing::JwtSigner;
using testing::Keys;
using testing::kNow;
using testing::Signers;

// RFC 7515, A.2 and A.3: one payload, which has no audience; RFC 8037, A.4: a payload of text.
TEST_F(Jwt, ExamplesOfTheRfcsVerify) {
  const std::vector<std::string> all{"RS256", "ES256", "EdDSA"};
  const std::string payload =
      "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFt"
      "cGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
  const KeySet rsa = Keys({json{{"kty", "RSA"},
                                {"n",
                                 "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddx"
                                 "HmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMs"
                                 "D1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSH"
                                 "SXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdV"
                                 "MTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8"
                                 "NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ"},
                                {"e", "AQAB"}}});
  const std::string rs256 = absl::StrCat(
      "eyJhbGciOiJSUzI1NiJ9.", payload,
      ".cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2"
      "Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQ"
      "BMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6Ie"
      "YI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw");
  const auto first = VerifySignature(rs256, rsa, all);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_THAT(*first, HasSubstr("\"http://example.com/is_root\":true"));
  const KeySet p256 = Keys({json{{"kty", "EC"},
                                 {"crv", "P-256"},
                                 {"x", "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU"},
                                 {"y", "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}}});
  const std::string es256 = absl::StrCat(
      "eyJhbGciOiJFUzI1NiJ9.", payload,
      ".DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q");
  EXPECT_EQ(VerifySignature(es256, p256, all).value_or("refused"), *first);
  const KeySet ed25519 = Keys(
      {{{"kty", "OKP"}, {"crv", "Ed25519"}, {"x", "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}}});
  const std::string eddsa =
      "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc."
      "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
  EXPECT_EQ(VerifySignature(eddsa, ed25519, all).value_or("refused"), "Example of Ed25519 signing");
  const JwtPolicy joe{"joe", "trainyard", all, absl::ZeroDuration()};
  ExpectRefused(VerifyJwt(es256, p256, joe, absl::FromUnixSeconds(1300819379)), "no 'aud'");
}

TEST_F(Jwt, EachAlgorithmVerifiesAndNoFlippedBitDoes) {
  for (const JwtSigner& signer : Signers()) {
    SCOPED_TRACE(signer.algorithm());
    const std::string token = signer.Token(signer.Header(), Claims());
    ASSERT_TRUE(Verify(token).ok()) << Verify(token).status();
    EXPECT_EQ(*Verify(token), Claims());
    for (size_t i = 0; i < token.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        std::string flipped = token;
        flipped[i] = char(flipped[i] ^ (1 << bit));
        EXPECT_EQ(Verify(flipped).status().code(), absl::StatusCode::kUnauthenticated)
            << i << " " << bit;
      }
      EXPECT_FALSE(Verify(token.substr(0, i)).ok()) << i;
      EXPECT_FALSE(Verify(token.substr(i + 1)).ok()) << i;
    }
    for (const char* end : {".", "=", "A", "\n", " ", "~"}) {
      EXPECT_FALSE(Verify(absl::StrCat(token, end)).ok()) << end;
    }
  }
}

TEST_F(Jwt, KeyOfAnotherIsRefused) {
  for (const char* algorithm : {"RS256", "ES256", "EdDSA"}) {
    const JwtSigner other(algorithm);
    ExpectRefused(Verify(other.Token(other.Header(), Claims())), "signature is wrong");
    // The sender's own key in the header makes no difference.
    json header = other.Header();
    header["jwk"] = other.Jwk();
    header["jku"] = "https://evil.example.org/keys";
    ExpectRefused(Verify(other.Token(header, Claims())), "signature is wrong");
  }
}

TEST_F(Jwt, AlgorithmIsTheKeysOwnWhateverTheHeaderSays) {
  for (const JwtSigner& signer : Signers()) {
    for (const char* claimed : {"RS256", "ES256", "EdDSA"}) {
      if (claimed == signer.algorithm()) continue;
      json header = signer.Header();
      header["alg"] = claimed;
      ExpectRefused(Verify(signer.Token(header, Claims())), "key that the issuer's JWKS does not");
      header.erase("kid");
      ExpectRefused(Verify(signer.Token(header, Claims())), "signature is wrong");
      EXPECT_FALSE(
          VerifyJwt(signer.Token(header, Claims()), Keys({signer.Jwk()}), policy_, kNow).ok());
    }
  }
}

TEST_F(Jwt, OnlyThePolicysAlgorithmsAreAccepted) {
  for (const JwtSigner& signer : Signers()) {
    const std::string token = signer.Token(signer.Header(), Claims());
    for (const char* allowed : {"RS256", "ES256", "EdDSA"}) {
      policy_.algorithms = {allowed};
      EXPECT_EQ(Verify(token).ok(), allowed == signer.algorithm()) << allowed;
    }
  }
}

TEST_F(Jwt, PublicKeyIsNoSecretOfAnHmac) {
  for (const JwtSigner& signer : Signers()) {
    for (const std::string& secret :
         {signer.PublicPem(), signer.Jwk().dump(), std::string(), std::string("secret")}) {
      for (const char* name : {"HS256", "hs256", "RS256", "ES256", "EdDSA"}) {
        json header = signer.Header();
        header["alg"] = name;
        const std::string text =
            absl::StrCat(Base64Url(header.dump()), ".", Base64Url(Claims().dump()));
        const std::string token =
            absl::StrCat(text, ".", Base64Url(testing::HmacSha256(secret, text)));
        ExpectRefused(Verify(token), "");
        EXPECT_FALSE(VerifySignature(token, keys_, {"HS256", "hs256"}).ok());
      }
    }
  }
  policy_.algorithms = {"ES256", "HS256"};
  EXPECT_EQ(VerifyClaims(Claims()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(Jwt, UnsignedTokensAreRefused) {
  for (const char* none : {"none", "None", "NONE", "nOnE", "", "ES256"}) {
    const std::string text =
        absl::StrCat(Base64Url(json{{"alg", none}}.dump()), ".", Base64Url(Claims().dump()));
    for (const std::string& token : {text + ".", text, text + ".AAAA"}) {
      ExpectRefused(Verify(token), "");
      EXPECT_FALSE(VerifySignature(token, keys_, {"none", "", none}).ok()) << none;
    }
  }
  // Zeros are a signature of everything where ECDSA forgets to look (CVE-2022-21449).
  const std::string token = signer_.Token(signer_.Header(), Claims());
  const std::string zeros =
      token.substr(0, token.rfind('.') + 1) + Base64Url(std::string(64, '\0'));
  ExpectRefused(Verify(zeros), "signature is wrong");
  policy_.algorithms = {"none"};
  EXPECT_EQ(Verify(token).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(Jwt, SignatureOfES256HasOneLength) {
  const std::string token = signer_.Token(signer_.Header(), Claims());
  const std::string text = token.substr(0, token.rfind('.'));
  const std::string signature = signer_.Sign(text);
  const std::string r = signature.substr(0, 32), s = signature.substr(32);
  const std::string zero(1, '\0');
  EXPECT_TRUE(Verify(absl::StrCat(text, ".", Base64Url(r + s))).ok());
  for (const std::string& other : {r + zero + s, zero + r + s, r + s + zero, r, s + r}) {
    ExpectRefused(Verify(absl::StrCat(text, ".", Base64Url(other))), "signature is wrong");
  }
}

TEST_F(Jwt, KidMustMatchWhereItIsGiven) {
  json header = signer_.Header();
  header["kid"] = "other";
  ExpectRefused(Verify(signer_.Token(header, Claims())), "key that the issuer's JWKS does not");
  header["kid"] = 7;
  ExpectRefused(Verify(signer_.Token(header, Claims())), "'kid' is not a string");
  header.erase("kid");
  EXPECT_TRUE(Verify(signer_.Token(header, Claims())).ok());
  json anonymous = signer_.Jwk();
  anonymous.erase("kid");
  const std::string named = signer_.Token(signer_.Header(), Claims());
  EXPECT_FALSE(VerifyJwt(named, Keys({anonymous}), policy_, kNow).ok());
  EXPECT_TRUE(VerifyJwt(signer_.Token(header, Claims()), Keys({anonymous}), policy_, kNow).ok());
  // Where two keys have one kid, as while keys are exchanged, either may have signed.
  EXPECT_TRUE(
      VerifyJwt(named, Keys({JwtSigner("ES256").Jwk(), signer_.Jwk()}), policy_, kNow).ok());
}

}  // namespace
}  // namespace trainyard
