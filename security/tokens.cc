#include "security/tokens.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/crc32.h"
#include "common/sha256.h"
#include "security/openssl.h"

namespace trainyard {
namespace {

constexpr absl::string_view kPrefix = "ty_";
constexpr absl::string_view kDigits =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
constexpr size_t kRandomBytes = 32;
constexpr size_t kIdSize = 8;
constexpr size_t kRandomSize = 43;   // 62^43 > 2^256
constexpr size_t kChecksumSize = 6;  // 62^6 > 2^32
constexpr size_t kSecretSize = kRandomSize + kChecksumSize;

// The last `size` digits of a big-endian number in base 62.
template <size_t kBytes>
std::string Base62(std::array<uint8_t, kBytes> number, size_t size) {
  std::string digits(size, kDigits[0]);
  for (size_t i = size; i-- > 0;) {
    uint32_t rest = 0;
    for (uint8_t& byte : number) {
      const uint32_t value = rest << 8 | byte;
      byte = uint8_t(value / 62);
      rest = value % 62;
    }
    digits[i] = kDigits[rest];
  }
  return digits;
}

std::string Checksum(absl::string_view text) {
  const uint32_t crc = Crc32(0, text.data(), text.size());
  return Base62<4>({uint8_t(crc >> 24), uint8_t(crc >> 16), uint8_t(crc >> 8), uint8_t(crc)},
                   kChecksumSize);
}

bool IsBase62(absl::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return absl::ascii_isalnum(c); });
}

Token Assemble(absl::string_view id, absl::string_view secret) {
  return {std::string(id), std::string(secret), absl::StrCat(kPrefix, id, "_", secret)};
}

}  // namespace

absl::StatusOr<Token> NewToken() {
  const openssl::ErrorScope scope;
  std::array<uint8_t, kRandomBytes> secret;
  // Far more bits than the digits need, so that all ids are almost equally likely.
  std::array<uint8_t, 16> id;
  if (RAND_bytes(secret.data(), int(secret.size())) != 1 ||
      RAND_bytes(id.data(), int(id.size())) != 1) {
    return openssl::Error(absl::StatusCode::kInternal, "cannot get random bytes for a token");
  }
  const Token unchecked = Assemble(Base62(id, kIdSize), Base62(secret, kRandomSize));
  OPENSSL_cleanse(secret.data(), secret.size());
  return Assemble(unchecked.id, absl::StrCat(unchecked.secret, Checksum(unchecked.text)));
}

absl::StatusOr<Token> ParseToken(absl::string_view text) {
  const size_t secret_at = kPrefix.size() + kIdSize + 1;
  if (text.size() != secret_at + kSecretSize || text.substr(0, kPrefix.size()) != kPrefix ||
      text[secret_at - 1] != '_') {
    return absl::InvalidArgumentError(
        absl::StrCat("wanted a token: 'ty_', ", kIdSize, " characters, '_' and ", kSecretSize,
                     " characters; found ", text.size(), " characters of another form"));
  }
  const absl::string_view id = text.substr(kPrefix.size(), kIdSize);
  const absl::string_view secret = text.substr(secret_at);
  if (!IsBase62(id) || !IsBase62(secret)) {
    return absl::InvalidArgumentError(
        "wanted a token of letters and digits; found other characters in it");
  }
  if (Checksum(text.substr(0, text.size() - kChecksumSize)) != secret.substr(kRandomSize)) {
    return absl::InvalidArgumentError(
        "the token was not copied correctly: its checksum is wrong. Copy it once more.");
  }
  return Assemble(id, secret);
}

std::string HashSecret(const Token& token) { return Sha256Of(token.secret); }

bool SameSecret(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace trainyard
