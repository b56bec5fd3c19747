#include "security/openssl.h"

#include <openssl/core_names.h>
#include <openssl/pem.h>

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

namespace trainyard::openssl {
namespace {

constexpr int kMinRsaBits = 2048;
constexpr int kMaxRsaBits = 8192;  // The time to check a signature grows with the square.

}  // namespace

int NoPassphrase(char*, int, int, void*) { return -1; }

absl::Status Error(absl::StatusCode code, absl::string_view what) {
  const unsigned long error = ERR_peek_last_error();
  const char* const reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  if (reason == nullptr) return absl::Status(code, what);
  return absl::Status(code, absl::StrCat(what, ": ", reason));
}

Bio Reader(absl::string_view text) {
  // A longer text is cut. All callers have a far lower limit.
  const size_t size = std::min<size_t>(text.size(), std::numeric_limits<int>::max());
  return Bio(BIO_new_mem_buf(text.data() == nullptr ? "" : text.data(), int(size)));
}

std::string Text(const Bio& bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return size <= 0 ? std::string() : std::string(data, size_t(size));
}

absl::StatusOr<Key> ParseKey(absl::string_view pem) {
  const Bio bio = Reader(pem);
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, nullptr));
  if (key == nullptr) {
    return Error(absl::StatusCode::kInvalidArgument,
                 "wanted a private key in PEM, without a passphrase; this is none");
  }
  return key;
}

absl::StatusOr<Certificate> ParseCertificate(absl::string_view pem) {
  const Bio bio = Reader(pem);
  Certificate certificate(PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, nullptr));
  if (certificate == nullptr) {
    return Error(absl::StatusCode::kInvalidArgument, "wanted a certificate in PEM; this is none");
  }
  return certificate;
}

const EVP_MD* SigningDigest(const EVP_PKEY* key) {
  return EVP_PKEY_is_a(key, "ED25519") == 1 ? nullptr : EVP_sha256();
}

absl::Status CheckStrength(EVP_PKEY* key) {
  constexpr absl::string_view kWanted =
      "wanted an RSA key of 2048 to 8192 bits, or one of P-256, P-384 or Ed25519; this is ";
  if (EVP_PKEY_is_a(key, "ED25519") == 1) return absl::OkStatus();
  if (EVP_PKEY_is_a(key, "RSA") == 1) {
    const int bits = EVP_PKEY_get_bits(key);
    if (bits >= kMinRsaBits && bits <= kMaxRsaBits) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(kWanted, "RSA of ", bits, " bits"));
  }
  if (EVP_PKEY_is_a(key, "EC") == 1) {
    char group[64] = "a curve without a name";
    size_t size = 0;
    // If a curve's parameters are written out, one of them may have been changed (CVE-2020-0601).
    int written_out = 1;
    (void)EVP_PKEY_get_int_param(key, OSSL_PKEY_PARAM_EC_DECODED_FROM_EXPLICIT_PARAMS,
                                 &written_out);
    if (EVP_PKEY_get_group_name(key, group, sizeof(group), &size) == 1 && written_out == 0) {
      const absl::string_view name(group);
      if (name == SN_X9_62_prime256v1 || name == SN_secp384r1) return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat(
        kWanted, written_out != 0 ? "a curve whose parameters are written out" : group));
  }
  const char* const type = EVP_PKEY_get0_type_name(key);
  return absl::InvalidArgumentError(absl::StrCat(kWanted, type == nullptr ? "unknown" : type));
}

}  // namespace trainyard::openssl
