#include "security/key_set.h"

#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/param_build.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "security/openssl.h"
#include "security/strict_json.h"

namespace trainyard {
namespace {

using openssl::Error;
using openssl::Owned;

constexpr size_t kMaxKeySetBytes = 256 << 10;
constexpr size_t kMaxKeys = 100;
constexpr size_t kP256Bytes = 32;

using Number = Owned<BIGNUM, BN_free>;
using Builder = Owned<OSSL_PARAM_BLD, OSSL_PARAM_BLD_free>;
using Parameters = Owned<OSSL_PARAM, OSSL_PARAM_free>;
using KeyContext = Owned<EVP_PKEY_CTX, EVP_PKEY_CTX_free>;
using DigestContext = Owned<EVP_MD_CTX, EVP_MD_CTX_free>;

const unsigned char* Bytes(absl::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

Number MakeNumber(absl::string_view bytes) {
  return Number(BN_bin2bn(Bytes(bytes), int(bytes.size()), nullptr));
}

absl::StatusOr<std::string> BytesMember(const nlohmann::json& jwk, const char* name) {
  const std::string* const text = StringMember(jwk, name);
  if (text == nullptr || text->empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the member '", name, "' is missing"));
  }
  return DecodeBase64Url(*text);
}

absl::StatusOr<openssl::Key> Build(const char* type, OSSL_PARAM_BLD* builder) {
  const Parameters parameters(OSSL_PARAM_BLD_to_param(builder));
  const KeyContext context(EVP_PKEY_CTX_new_from_name(nullptr, type, nullptr));
  EVP_PKEY* key = nullptr;
  if (parameters == nullptr || context == nullptr || EVP_PKEY_fromdata_init(context.get()) != 1 ||
      EVP_PKEY_fromdata(context.get(), &key, EVP_PKEY_PUBLIC_KEY, parameters.get()) != 1) {
    return Error(absl::StatusCode::kInvalidArgument, absl::StrCat("not a public key of ", type));
  }
  openssl::Key owned(key);
  RETURN_IF_ERROR(openssl::CheckStrength(owned.get()));
  return owned;
}

absl::StatusOr<openssl::Key> RsaKey(const nlohmann::json& jwk) {
  ASSIGN_OR_RETURN(const std::string modulus, BytesMember(jwk, "n"));
  ASSIGN_OR_RETURN(const std::string exponent, BytesMember(jwk, "e"));
  const Number n = MakeNumber(modulus), e = MakeNumber(exponent);
  const Builder builder(OSSL_PARAM_BLD_new());
  // With the exponent 1, every text would be its own signature.
  if (n == nullptr || e == nullptr || BN_num_bits(e.get()) > 64 || BN_is_odd(e.get()) != 1 ||
      BN_is_one(e.get()) == 1) {
    return absl::InvalidArgumentError("wanted an odd RSA exponent from 3 to 2^64");
  }
  if (builder == nullptr ||
      OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_N, n.get()) != 1 ||
      OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_E, e.get()) != 1) {
    return Error(absl::StatusCode::kInternal, "cannot build an RSA key");
  }
  return Build("RSA", builder.get());
}

absl::StatusOr<openssl::Key> P256Key(const nlohmann::json& jwk) {
  ASSIGN_OR_RETURN(const std::string x, BytesMember(jwk, "x"));
  ASSIGN_OR_RETURN(const std::string y, BytesMember(jwk, "y"));
  if (x.size() != kP256Bytes || y.size() != kP256Bytes) {
    return absl::InvalidArgumentError("wanted coordinates of 32 bytes for a key of P-256");
  }
  const std::string point = absl::StrCat("\x04", x, y);  // 4: both coordinates follow.
  const Builder builder(OSSL_PARAM_BLD_new());
  if (builder == nullptr ||
      OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME,
                                      SN_X9_62_prime256v1, 0) != 1 ||
      OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY, point.data(),
                                       point.size()) != 1) {
    return Error(absl::StatusCode::kInternal, "cannot build a key of P-256");
  }
  return Build("EC", builder.get());
}

absl::StatusOr<openssl::Key> Ed25519Key(const nlohmann::json& jwk) {
  ASSIGN_OR_RETURN(const std::string x, BytesMember(jwk, "x"));
  openssl::Key key(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, Bytes(x), x.size()));
  if (key == nullptr) {
    return Error(absl::StatusCode::kInvalidArgument, "not a public key of Ed25519");
  }
  return key;
}

// Returns the algorithm for a key of this type and curve. Empty: none that is known here.
std::string AlgorithmOf(const nlohmann::json& jwk) {
  const std::string* const type = StringMember(jwk, "kty");
  const std::string* const curve = StringMember(jwk, "crv");
  if (type == nullptr) return "";
  if (*type == "RSA") return "RS256";
  if (curve == nullptr) return "";
  if (*type == "EC" && *curve == "P-256") return "ES256";
  return *type == "OKP" && *curve == "Ed25519" ? "EdDSA" : "";
}

// Whether the key's issuer allows checking signatures of this algorithm with it.
bool MayVerify(const nlohmann::json& jwk, const std::string& algorithm) {
  const auto is = [&](const char* name, const std::string& wanted) {
    if (!jwk.contains(name)) return true;
    const std::string* const value = StringMember(jwk, name);
    return value != nullptr && *value == wanted;
  };
  if (!is("alg", algorithm) || !is("use", "sig")) return false;
  const auto operations = jwk.find("key_ops");
  if (operations == jwk.end()) return true;
  for (const nlohmann::json& operation : *operations) {
    const std::string* const name = operation.get_ptr<const std::string*>();
    if (name != nullptr && *name == "verify") return true;
  }
  return false;
}

// A signature of ES256 is two numbers side by side (RFC 7518, 3.4). OpenSSL wants them in DER.
std::string SignatureInDer(absl::string_view signature) {
  if (signature.size() != 2 * kP256Bytes) return "";
  const Owned<ECDSA_SIG, ECDSA_SIG_free> pair(ECDSA_SIG_new());
  Number r = MakeNumber(signature.substr(0, kP256Bytes));
  Number s = MakeNumber(signature.substr(kP256Bytes));
  if (pair == nullptr || r == nullptr || s == nullptr ||
      ECDSA_SIG_set0(pair.get(), r.get(), s.get()) != 1) {
    return "";
  }
  (void)r.release();
  (void)s.release();
  unsigned char* data = nullptr;
  const int size = i2d_ECDSA_SIG(pair.get(), &data);
  const std::string der(reinterpret_cast<const char*>(data), size > 0 ? size_t(size) : 0);
  OPENSSL_free(data);
  return der;
}

}  // namespace

struct KeySet::Key {
  openssl::Key key;
  std::string algorithm;
  absl::optional<std::string> kid;

  static absl::StatusOr<Key> Parse(const nlohmann::json& jwk);
  bool Verify(absl::string_view text, absl::string_view signature) const;
};

absl::StatusOr<KeySet::Key> KeySet::Key::Parse(const nlohmann::json& jwk) {
  Key key;
  key.algorithm = AlgorithmOf(jwk);
  if (key.algorithm.empty() || !MayVerify(jwk, key.algorithm)) {
    return absl::InvalidArgumentError("its type, curve, algorithm or use is not one of ours");
  }
  if (jwk.contains("kid")) {
    const std::string* const kid = StringMember(jwk, "kid");
    if (kid == nullptr) return absl::InvalidArgumentError("its kid is not a string");
    key.kid = *kid;
  }
  absl::StatusOr<openssl::Key> parsed = key.algorithm == "RS256"   ? RsaKey(jwk)
                                        : key.algorithm == "ES256" ? P256Key(jwk)
                                                                   : Ed25519Key(jwk);
  ASSIGN_OR_RETURN(key.key, std::move(parsed));
  return key;
}

bool KeySet::Key::Verify(absl::string_view text, absl::string_view signature) const {
  const std::string bytes =
      algorithm == "ES256" ? SignatureInDer(signature) : std::string(signature);
  const DigestContext context(EVP_MD_CTX_new());
  return context != nullptr && !bytes.empty() &&
         EVP_DigestVerifyInit(context.get(), nullptr, openssl::SigningDigest(key.get()), nullptr,
                              key.get()) == 1 &&
         EVP_DigestVerify(context.get(), Bytes(bytes), bytes.size(), Bytes(text), text.size()) == 1;
}

absl::StatusOr<KeySet> KeySet::Parse(absl::string_view json) {
  const openssl::ErrorScope scope;
  if (json.size() > kMaxKeySetBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("wanted a JWKS of at most ", kMaxKeySetBytes, " bytes, found ", json.size()));
  }
  ASSIGN_OR_RETURN(const nlohmann::json set, ParseStrictJson(json, "the JWKS"));
  const auto keys = set.find("keys");
  if (keys == set.end() || !keys->is_array() || keys->size() > kMaxKeys) {
    return absl::InvalidArgumentError(absl::StrCat(
        "wanted a JWKS: an object whose member 'keys' is an array of at most ", kMaxKeys, " keys"));
  }
  KeySet parsed;
  std::string why = "it is empty";
  for (const nlohmann::json& jwk : *keys) {
    if (!jwk.is_object()) return absl::InvalidArgumentError("a key of the JWKS is no object");
    if (jwk.contains("d")) {
      return absl::InvalidArgumentError(
          "the JWKS holds a private key (the member 'd'): replace that key, which is no secret "
          "now");
    }
    absl::StatusOr<Key> key = Key::Parse(jwk);
    if (key.ok()) {
      parsed.keys_.push_back(std::make_shared<const Key>(*std::move(key)));
    } else {
      why = std::string(key.status().message());
    }
  }
  if (parsed.keys_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the JWKS has no key for RS256, ES256 or EdDSA. Of the last one: ", why));
  }
  return parsed;
}

absl::Status KeySet::Verify(const Claimed& claimed, absl::string_view text,
                            absl::string_view signature) const {
  const openssl::ErrorScope scope;
  bool tried = false;
  for (const std::shared_ptr<const Key>& key : keys_) {
    if (key->algorithm != claimed.algorithm) continue;
    if (claimed.kid.has_value() && key->kid != claimed.kid) continue;
    tried = true;
    if (key->Verify(text, signature)) return absl::OkStatus();
  }
  return absl::UnauthenticatedError(
      tried
          ? "the token's signature is wrong"
          : "the token is signed by a key that the issuer's JWKS does not have for its algorithm");
}

}  // namespace trainyard
