// JSON Web Tokens and the sets of keys that check them. The first line says what the rest is: a set
// of keys, a whole token, or claims, which the target signs so that they are looked at.

#include "security/jwt.h"

#include <openssl/evp.h>

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "security/openssl.h"
#include "security/strict_json.h"
#include "tests/fuzz/input.h"

namespace trainyard {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

std::string Base64Url(absl::string_view bytes) {
  std::string text;
  absl::WebSafeBase64Escape(bytes, &text);
  while (!text.empty() && text.back() == '=') text.pop_back();
  return text;
}

// An issuer whose key is the same in every run.
class Issuer {
 public:
  Issuer()
      : key_(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr,
                                          reinterpret_cast<const unsigned char*>(kSeed), 32)) {
    std::string x(32, '\0');
    size_t size = x.size();
    CHECK(EVP_PKEY_get_raw_public_key(key_.get(), reinterpret_cast<unsigned char*>(x.data()),
                                      &size) == 1);
    const nlohmann::json jwk = {{"kty", "OKP"}, {"crv", "Ed25519"}, {"x", Base64Url(x)}};
    json_ = nlohmann::json{{"keys", {jwk}}}.dump();
  }
  const std::string& json() const { return json_; }

  std::string Sign(absl::string_view claims) const {
    std::string text = absl::StrCat(Base64Url(R"({"alg":"EdDSA"})"), ".", Base64Url(claims));
    std::string signature(64, '\0');
    size_t size = signature.size();
    const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                          &EVP_MD_CTX_free);
    CHECK(EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key_.get()) == 1 &&
          EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size,
                         reinterpret_cast<const unsigned char*>(text.data()), text.size()) == 1);
    return absl::StrCat(text, ".", Base64Url(signature));
  }

 private:
  static constexpr char kSeed[] = "a secret of 32 bytes, for a test";
  openssl::Key key_;
  std::string json_;
};

void CheckKeys(absl::string_view text) {
  const auto keys = KeySet::Parse(text);
  if (!keys.ok()) return fuzz::CheckRefusal(keys.status());
  CHECK(keys->size() > 0);
}

void CheckToken(absl::string_view text) {
  static const Issuer issuer;
  static const auto keys = KeySet::Parse(issuer.json());
  CHECK(keys.ok()) << keys.status().ToString();
  const JwtPolicy policy = {
      "https://issuer", "trainyard", {"RS256", "ES256", "EdDSA"}, absl::Seconds(60)};
  const bool token = text.substr(0, 2) == "ey";  // Base64 of '{"'.
  const auto claims = VerifyJwt(token ? std::string(text) : issuer.Sign(text), *keys, policy, kNow);
  if (!claims.ok()) {
    CHECK(absl::IsUnauthenticated(claims.status())) << claims.status().ToString();
    return fuzz::CheckRefusal(claims.status());
  }
  CHECK(claims->at("iss") == policy.issuer && claims->contains("exp")) << claims->dump();
}

void CheckStrictJson(absl::string_view text) {
  const auto read = ParseStrictJson(text, "the text");
  if (!read.ok()) return fuzz::CheckRefusal(read.status());
  const auto again = ParseStrictJson(read->dump(), "the text");
  CHECK(again.ok() && *again == *read) << text;
  for (const auto& item : read->items()) {
    if (const std::string* const value = StringMember(*read, item.key().c_str())) {
      (void)DecodeBase64Url(*value);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const absl::string_view kind = input.Line();
  const absl::string_view text = input.Rest();
  if (kind == "keys") CheckKeys(text);
  if (kind == "token") CheckToken(text);
  if (kind == "json") CheckStrictJson(text);
  if (kind == "base64url") {
    const auto bytes = DecodeBase64Url(text);
    if (bytes.ok()) CHECK(Base64Url(*bytes) == text) << text;
  }
  return 0;
}

}  // namespace trainyard
