#include "security/certificate_parts.h"

#include <arpa/inet.h>

#include <algorithm>
#include <ctime>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "common/text.h"

namespace trainyard::openssl {
namespace {

constexpr size_t kMaxNameBytes = 2048;  // Of one URI; hosts are shorter by their own rules.

absl::Status Invalid(absl::string_view what, absl::string_view found) {
  return absl::InvalidArgumentError(
      absl::StrCat("wanted ", what, ", found '", VisibleUtf8(ValidUtf8(CutUtf8(found, 200))), "'"));
}

bool IsHost(absl::string_view name) {
  if (name.size() > 253) return false;
  for (const absl::string_view label : absl::StrSplit(name, '.')) {
    const bool characters = std::all_of(label.begin(), label.end(), [](unsigned char c) {
      return absl::ascii_isalnum(c) || c == '-' || c == '_';
    });
    if (label.empty() || label.size() > 63 || !characters) return false;
  }
  return true;
}

bool IsUri(absl::string_view name) {
  const size_t colon = name.find(':');
  return name.size() <= kMaxNameBytes && colon != 0 && colon != absl::string_view::npos &&
         absl::ascii_isalpha(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return absl::ascii_isgraph(c); });
}

// Returns four or sixteen bytes. Empty: the text is not an address.
std::string AddressBytes(const std::string& text) {
  std::string bytes(16, '\0');
  if (text.find('\0') != std::string::npos) return "";
  if (::inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1) return bytes;
  bytes.resize(4);
  return ::inet_pton(AF_INET, text.c_str(), bytes.data()) == 1 ? bytes : "";
}

absl::Status AddName(const Names& names, int type, absl::string_view value) {
  Owned<GENERAL_NAME, GENERAL_NAME_free> name(GENERAL_NAME_new());
  Owned<ASN1_STRING, ASN1_STRING_free> text(
      ASN1_STRING_type_new(type == GEN_IPADD ? V_ASN1_OCTET_STRING : V_ASN1_IA5STRING));
  if (name == nullptr || text == nullptr ||
      ASN1_STRING_set(text.get(), value.data(), int(value.size())) != 1) {
    return Error(absl::StatusCode::kInternal, "cannot make a name");
  }
  GENERAL_NAME_set0_value(name.get(), type, text.release());
  if (sk_GENERAL_NAME_push(names.get(), name.get()) <= 0) {
    return Error(absl::StatusCode::kInternal, "cannot add a name");
  }
  (void)name.release();
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadText(const ASN1_STRING* text) {
  unsigned char* data = nullptr;
  const int size = ASN1_STRING_to_UTF8(&data, text);
  if (size < 0) return Error(absl::StatusCode::kInvalidArgument, "the certificate has a bad name");
  std::string name(reinterpret_cast<const char*>(data), size_t(size));
  OPENSSL_free(data);
  // A program for which a NUL ends the text would read another name.
  if (name.find('\0') != std::string::npos || ValidUtf8(name) != name) {
    return Invalid("names without NUL, in UTF-8, in the certificate", name);
  }
  return name;
}

absl::StatusOr<std::string> ReadAddress(const ASN1_STRING* bytes) {
  char text[INET6_ADDRSTRLEN] = "";
  const int size = ASN1_STRING_length(bytes);
  if (size != 4 && size != 16) {
    return absl::InvalidArgumentError(
        absl::StrCat("the certificate has an address of ", size, " bytes; wanted 4 or 16"));
  }
  ::inet_ntop(size == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(bytes), text, sizeof(text));
  return std::string(text);
}

absl::Status SetTime(ASN1_TIME* field, absl::Time time) {
  const std::time_t seconds = absl::ToTimeT(time);
  // OpenSSL writes years with four digits, and 9999 is the last.
  const bool in_range = time >= absl::FromCivil(absl::CivilYear(1), absl::UTCTimeZone()) &&
                        time < absl::FromCivil(absl::CivilYear(10000), absl::UTCTimeZone());
  if (in_range && ASN1_TIME_set(field, seconds) != nullptr) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument,
               absl::StrCat("wanted a time in the years 1 to 9999 for a certificate, found ",
                            absl::FormatTime(time, absl::UTCTimeZone())));
}

}  // namespace

absl::Status SetCommonName(X509_NAME* name, absl::string_view common_name) {
  const bool control = std::any_of(common_name.begin(), common_name.end(),
                                   [](unsigned char c) { return absl::ascii_iscntrl(c); });
  constexpr absl::string_view kWanted = "a name of 1 to 64 characters without control characters";
  if (common_name.empty() || common_name.size() > kMaxNameBytes || control) {
    return Invalid(kWanted, common_name);
  }
  // OpenSSL counts the characters, and refuses text that is not UTF-8.
  if (X509_NAME_add_entry_by_NID(name, NID_commonName, MBSTRING_UTF8,
                                 reinterpret_cast<const unsigned char*>(common_name.data()),
                                 int(common_name.size()), -1, 0) != 1) {
    return Error(absl::StatusCode::kInvalidArgument, Invalid(kWanted, common_name).message());
  }
  return absl::OkStatus();
}

absl::Status SetBasics(X509* certificate, EVP_PKEY* key, absl::Time not_before,
                       absl::Time not_after) {
  if (not_after < not_before) {
    return absl::InvalidArgumentError(
        absl::StrCat("wanted a time for a certificate that ends after it begins, found from ",
                     absl::FormatTime(not_before, absl::UTCTimeZone()), " to ",
                     absl::FormatTime(not_after, absl::UTCTimeZone())));
  }
  RETURN_IF_ERROR(SetTime(X509_getm_notBefore(certificate), not_before));
  RETURN_IF_ERROR(SetTime(X509_getm_notAfter(certificate), not_after));
  Owned<BIGNUM, BN_free> serial(BN_new());
  if (serial == nullptr || BN_rand(serial.get(), 128, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) != 1 ||
      BN_to_ASN1_INTEGER(serial.get(), X509_get_serialNumber(certificate)) == nullptr ||
      X509_set_version(certificate, X509_VERSION_3) != 1 ||
      X509_set_pubkey(certificate, key) != 1) {
    return Error(absl::StatusCode::kInternal, "cannot make a certificate");
  }
  return absl::OkStatus();
}

absl::Status AddExtension(X509* certificate, const X509* issuer, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, const_cast<X509*>(issuer), certificate, nullptr, nullptr, 0);
  const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value));
  if (extension == nullptr || X509_add_ext(certificate, extension.get(), -1) != 1) {
    return Error(absl::StatusCode::kInternal,
                 absl::StrCat("cannot add ", OBJ_nid2sn(nid), " to a certificate"));
  }
  return absl::OkStatus();
}

absl::Status AddNames(X509* certificate, const CertificateFacts& facts) {
  const Names names(GENERAL_NAMES_new());
  if (names == nullptr) return Error(absl::StatusCode::kInternal, "cannot make names");
  for (const std::string& uri : facts.uris) {
    if (!IsUri(uri)) return Invalid("a URI of at most 2048 printable characters", uri);
    RETURN_IF_ERROR(AddName(names, GEN_URI, uri));
  }
  for (const std::string& host : facts.dns_names) {
    if (!IsHost(host)) return Invalid("the DNS name of one host", host);
    RETURN_IF_ERROR(AddName(names, GEN_DNS, host));
  }
  for (const std::string& address : facts.addresses) {
    const std::string bytes = AddressBytes(address);
    if (bytes.empty()) return Invalid("an IPv4 or IPv6 address", address);
    RETURN_IF_ERROR(AddName(names, GEN_IPADD, bytes));
  }
  if (sk_GENERAL_NAME_num(names.get()) == 0) return absl::OkStatus();
  if (X509_add1_ext_i2d(certificate, NID_subject_alt_name, names.get(), 0, 0) != 1) {
    return Error(absl::StatusCode::kInternal, "cannot add names to a certificate");
  }
  return absl::OkStatus();
}

absl::Status ReadNames(const X509* certificate, CertificateFacts& facts) {
  int found = 0;
  const Names names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, &found, nullptr)));
  if (names == nullptr && found == -1) return absl::OkStatus();  // There is none.
  if (names == nullptr) {
    return Error(absl::StatusCode::kInvalidArgument,
                 "the certificate's subjectAltName cannot be read, or is there twice");
  }
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    int type = 0;
    const void* const value = GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names.get(), i), &type);
    const auto* const text = static_cast<const ASN1_STRING*>(value);
    if (type == GEN_IPADD) {
      ASSIGN_OR_RETURN(facts.addresses.emplace_back(), ReadAddress(text));
    } else if (type == GEN_URI || type == GEN_DNS) {
      ASSIGN_OR_RETURN(std::string name, ReadText(text));
      (type == GEN_URI ? facts.uris : facts.dns_names).push_back(std::move(name));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadCommonName(const X509* certificate) {
  const X509_NAME* const subject = X509_get_subject_name(certificate);
  const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (at < 0) return std::string();
  if (X509_NAME_get_index_by_NID(subject, NID_commonName, at) >= 0) {
    return absl::InvalidArgumentError("the certificate has more than one common name");
  }
  return ReadText(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
}

absl::StatusOr<absl::Time> ReadTime(const ASN1_TIME* time) {
  std::tm civil{};
  if (ASN1_TIME_to_tm(time, &civil) != 1) {
    return Error(absl::StatusCode::kInvalidArgument, "the certificate has a bad time");
  }
  return absl::FromTM(civil, absl::UTCTimeZone());
}

}  // namespace trainyard::openssl
