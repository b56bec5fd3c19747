// Issues JSON Web Tokens for tests, by OpenSSL alone: nothing of security/ that they test.

#pragma once

#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "security/openssl.h"

namespace trainyard::testing {

inline std::string Base64Url(absl::string_view bytes) {
  return absl::WebSafeBase64Escape(bytes);  // Without padding.
}

inline unsigned char* Bytes(std::string& text) {
  return reinterpret_cast<unsigned char*>(text.data());
}

// The key of an issuer, for one of "RS256", "ES256", "EdDSA".
class JwtSigner {
 public:
  explicit JwtSigner(std::string algorithm, size_t rsa_bits = 2048)
      : algorithm_(std::move(algorithm)),
        key_(algorithm_ == "RS256"   ? EVP_RSA_gen(rsa_bits)
             : algorithm_ == "ES256" ? EVP_EC_gen("P-256")
                                     : EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519")) {
    CHECK(key_ != nullptr);
  }

  const std::string& algorithm() const { return algorithm_; }
  nlohmann::json Header() const { return {{"alg", algorithm_}, {"kid", algorithm_ + "-key"}}; }

  // The public key as a member of a JWKS.
  nlohmann::json Jwk() const {
    nlohmann::json jwk{{"kid", algorithm_ + "-key"}, {"use", "sig"}, {"alg", algorithm_}};
    if (algorithm_ == "RS256") {
      jwk.update({{"kty", "RSA"}, {"n", Number("n")}, {"e", Number("e")}});
    } else if (algorithm_ == "ES256") {
      jwk.update(
          {{"kty", "EC"}, {"crv", "P-256"}, {"x", Number("qx", 32)}, {"y", Number("qy", 32)}});
    } else {
      std::string x(32, '\0');
      size_t size = x.size();
      CHECK(EVP_PKEY_get_raw_public_key(key_.get(), Bytes(x), &size) == 1);
      jwk.update({{"kty", "OKP"}, {"crv", "Ed25519"}, {"x", Base64Url(x)}});
    }
    return jwk;
  }
  std::string PublicPem() const {
    const openssl::Bio bio(BIO_new(BIO_s_mem()));
    CHECK(PEM_write_bio_PUBKEY(bio.get(), key_.get()) == 1);
    return openssl::Text(bio);
  }

  std::string Token(const nlohmann::json& header, const nlohmann::json& claims) const {
    return TokenOfTexts(header.dump(), claims.dump());
  }
  std::string TokenOfTexts(absl::string_view header, absl::string_view payload) const {
    const std::string text = absl::StrCat(Base64Url(header), ".", Base64Url(payload));
    return absl::StrCat(text, ".", Base64Url(Sign(text)));
  }
  std::string Sign(const std::string& text) const {
    const openssl::Owned<EVP_MD_CTX, EVP_MD_CTX_free> context(EVP_MD_CTX_new());
    const EVP_MD* const digest = algorithm_ == "EdDSA" ? nullptr : EVP_sha256();
    const auto* const data = reinterpret_cast<const unsigned char*>(text.data());
    std::string signature(1024, '\0');
    size_t size = signature.size();
    CHECK(EVP_DigestSignInit(context.get(), nullptr, digest, nullptr, key_.get()) == 1);
    CHECK(EVP_DigestSign(context.get(), Bytes(signature), &size, data, text.size()) == 1);
    signature.resize(size);
    return algorithm_ == "ES256" ? SideBySide(signature) : signature;
  }

 private:
  std::string Number(const char* name, int size = 0) const {
    BIGNUM* number = nullptr;
    CHECK(EVP_PKEY_get_bn_param(key_.get(), name, &number) == 1) << name;
    return Base64Url(BigEndian(openssl::Owned<BIGNUM, BN_free>(number).get(), size));
  }
  static std::string BigEndian(const BIGNUM* number, int size) {
    std::string bytes(size_t(std::max(size, BN_num_bytes(number))), '\0');
    CHECK(BN_bn2binpad(number, Bytes(bytes), int(bytes.size())) >= 0);
    return bytes;
  }
  static std::string SideBySide(std::string& der) {
    const unsigned char* data = Bytes(der);
    const openssl::Owned<ECDSA_SIG, ECDSA_SIG_free> pair(
        d2i_ECDSA_SIG(nullptr, &data, long(der.size())));
    CHECK(pair != nullptr);
    return BigEndian(ECDSA_SIG_get0_r(pair.get()), 32) +
           BigEndian(ECDSA_SIG_get0_s(pair.get()), 32);
  }

  const std::string algorithm_;
  const openssl::Key key_;
};

inline std::string HmacSha256(std::string key, std::string text) {
  std::string code(32, '\0');
  CHECK(HMAC(EVP_sha256(), key.data(), int(key.size()), Bytes(text), text.size(), Bytes(code),
             nullptr) != nullptr);
  return code;
}

}  // namespace trainyard::testing
