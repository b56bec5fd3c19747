#include "security/certificates.h"

#include <openssl/pem.h>

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "security/certificate_parts.h"
#include "security/openssl.h"

namespace trainyard {
namespace {

using openssl::AddExtension;
using openssl::Bio;
using openssl::Certificate;
using openssl::Error;
using openssl::ErrorScope;
using openssl::Key;
using openssl::Request;

constexpr size_t kMaxRequestBytes = 64 << 10;

std::string Show(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
}

absl::Status CannotMake(absl::string_view what) {
  return Error(absl::StatusCode::kInternal, absl::StrCat("cannot make ", what));
}

absl::StatusOr<std::string> KeyPem(const Key& key) {
  const Bio bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr || PEM_write_bio_PKCS8PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0,
                                                      nullptr, nullptr) != 1) {
    return CannotMake("a private key's PEM");
  }
  return openssl::Text(bio);
}

absl::StatusOr<std::string> SignedPem(const Certificate& certificate, EVP_PKEY* key) {
  const Bio bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr || X509_sign(certificate.get(), key, openssl::SigningDigest(key)) <= 0 ||
      PEM_write_bio_X509(bio.get(), certificate.get()) != 1) {
    return CannotMake("a signed certificate");
  }
  return openssl::Text(bio);
}

// Reads the request in a text. Its signature proves that the sender has the key.
absl::StatusOr<Request> ParseRequest(absl::string_view pem) {
  if (pem.size() > kMaxRequestBytes) {
    return absl::InvalidArgumentError(absl::StrCat("wanted a request of at most ", kMaxRequestBytes,
                                                   " bytes, found ", pem.size()));
  }
  const Bio bio = openssl::Reader(pem);
  Request request(PEM_read_bio_X509_REQ(bio.get(), nullptr, openssl::NoPassphrase, nullptr));
  if (request == nullptr) {
    return Error(absl::StatusCode::kInvalidArgument,
                 "wanted a certificate request (PKCS#10) in PEM; this is none");
  }
  EVP_PKEY* const key = X509_REQ_get0_pubkey(request.get());
  if (key == nullptr) {
    return Error(absl::StatusCode::kInvalidArgument, "the request's public key cannot be read");
  }
  RETURN_IF_ERROR(openssl::CheckStrength(key));
  if (X509_REQ_verify(request.get(), key) != 1) {
    return Error(absl::StatusCode::kInvalidArgument,
                 "the request's signature is not by the key that it holds");
  }
  return request;
}

struct Signer {
  Key key;
  Certificate certificate;
};

absl::StatusOr<Signer> ParseSigner(const Identity& identity) {
  Signer authority;
  ASSIGN_OR_RETURN(authority.key, openssl::ParseKey(identity.key_pem));
  ASSIGN_OR_RETURN(authority.certificate, openssl::ParseCertificate(identity.certificate_pem));
  if (X509_check_private_key(authority.certificate.get(), authority.key.get()) != 1) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 "the authority's key is not the one in its certificate");
  }
  X509* const certificate = authority.certificate.get();
  if (X509_check_ca(certificate) != 1 ||
      (X509_get_key_usage(certificate) & KU_KEY_CERT_SIGN) == 0) {
    return absl::FailedPreconditionError(
        "the authority's certificate does not allow it to sign certificates");
  }
  return authority;
}

absl::Status CheckTime(const X509* certificate, absl::Time now) {
  ASSIGN_OR_RETURN(const std::string name, openssl::ReadCommonName(certificate));
  ASSIGN_OR_RETURN(const absl::Time first, openssl::ReadTime(X509_get0_notBefore(certificate)));
  ASSIGN_OR_RETURN(const absl::Time last, openssl::ReadTime(X509_get0_notAfter(certificate)));
  if (now < first) {
    return absl::FailedPreconditionError(
        absl::StrCat("the certificate of '", name, "' is valid from ", Show(first),
                     " only; this machine's clock says ", Show(now)));
  }
  // RFC 5280, 4.1.2.5: the second that not_after names is the last valid one.
  if (now >= last + absl::Seconds(1)) {
    return absl::FailedPreconditionError(absl::StrCat("the certificate of '", name,
                                                      "' expired after ", Show(last),
                                                      "; this machine's clock says ", Show(now)));
  }
  return absl::OkStatus();
}

const char* Usages(const CertificateFacts& facts) {
  if (facts.server && facts.client) return "serverAuth,clientAuth";
  return facts.server ? "serverAuth" : "clientAuth";
}

}  // namespace

absl::StatusOr<std::string> NewKey() {
  const ErrorScope scope;
  const Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) return CannotMake("a key");
  return KeyPem(key);
}

absl::StatusOr<Identity> NewAuthority(absl::string_view name, absl::Time not_before,
                                      absl::Time not_after) {
  const ErrorScope scope;
  const Key key(EVP_EC_gen("P-256"));
  const Certificate certificate(X509_new());
  X509* const made = certificate.get();
  if (key == nullptr || made == nullptr) return CannotMake("an authority");
  RETURN_IF_ERROR(openssl::SetBasics(made, key.get(), not_before, not_after));
  RETURN_IF_ERROR(openssl::SetCommonName(X509_get_subject_name(made), name));
  if (X509_set_issuer_name(made, X509_get_subject_name(made)) != 1) {
    return CannotMake("an authority");
  }
  RETURN_IF_ERROR(AddExtension(made, made, NID_basic_constraints, "critical,CA:TRUE,pathlen:0"));
  RETURN_IF_ERROR(AddExtension(made, made, NID_key_usage, "critical,keyCertSign,cRLSign"));
  RETURN_IF_ERROR(AddExtension(made, made, NID_subject_key_identifier, "hash"));
  Identity identity;
  ASSIGN_OR_RETURN(identity.key_pem, KeyPem(key));
  ASSIGN_OR_RETURN(identity.certificate_pem, SignedPem(certificate, key.get()));
  return identity;
}

absl::StatusOr<std::string> NewRequest(absl::string_view key_pem, absl::string_view common_name) {
  const ErrorScope scope;
  ASSIGN_OR_RETURN(const Key key, openssl::ParseKey(key_pem));
  const Request request(X509_REQ_new());
  const Bio bio(BIO_new(BIO_s_mem()));
  if (request == nullptr || bio == nullptr) return CannotMake("a request");
  RETURN_IF_ERROR(openssl::SetCommonName(X509_REQ_get_subject_name(request.get()), common_name));
  if (X509_REQ_set_version(request.get(), X509_REQ_VERSION_1) != 1 ||
      X509_REQ_set_pubkey(request.get(), key.get()) != 1 ||
      X509_REQ_sign(request.get(), key.get(), openssl::SigningDigest(key.get())) <= 0 ||
      PEM_write_bio_X509_REQ(bio.get(), request.get()) != 1) {
    return CannotMake("a request");
  }
  return openssl::Text(bio);
}

absl::StatusOr<std::string> Sign(const Identity& authority, absl::string_view request_pem,
                                 const CertificateFacts& facts) {
  const ErrorScope scope;
  if (!facts.server && !facts.client) {
    // A certificate without a purpose can be used for everything.
    return absl::InvalidArgumentError("wanted a certificate for a server, a client or both");
  }
  ASSIGN_OR_RETURN(const Request request, ParseRequest(request_pem));
  ASSIGN_OR_RETURN(const Signer by, ParseSigner(authority));
  const X509* const issuer = by.certificate.get();
  ASSIGN_OR_RETURN(const absl::Time last, openssl::ReadTime(X509_get0_notAfter(issuer)));
  if (facts.not_before > last) {
    return absl::FailedPreconditionError(
        absl::StrCat("the authority's certificate expires after ", Show(last),
                     ", before the wanted one begins at ", Show(facts.not_before)));
  }
  const Certificate certificate(X509_new());
  X509* const made = certificate.get();
  if (made == nullptr) return CannotMake("a certificate");
  RETURN_IF_ERROR(openssl::SetBasics(made, X509_REQ_get0_pubkey(request.get()), facts.not_before,
                                     std::min(facts.not_after, last)));
  RETURN_IF_ERROR(openssl::SetCommonName(X509_get_subject_name(made), facts.common_name));
  if (X509_set_issuer_name(made, X509_get_subject_name(issuer)) != 1) {
    return CannotMake("a certificate");
  }
  RETURN_IF_ERROR(AddExtension(made, issuer, NID_basic_constraints, "critical,CA:FALSE"));
  RETURN_IF_ERROR(AddExtension(made, issuer, NID_key_usage, "critical,digitalSignature"));
  RETURN_IF_ERROR(AddExtension(made, issuer, NID_ext_key_usage, Usages(facts)));
  RETURN_IF_ERROR(AddExtension(made, issuer, NID_subject_key_identifier, "hash"));
  RETURN_IF_ERROR(AddExtension(made, issuer, NID_authority_key_identifier, "keyid:always"));
  RETURN_IF_ERROR(openssl::AddNames(made, facts));
  return SignedPem(certificate, by.key.get());
}

absl::StatusOr<CertificateFacts> ReadCertificate(absl::string_view certificate_pem) {
  const ErrorScope scope;
  ASSIGN_OR_RETURN(const Certificate owner, openssl::ParseCertificate(certificate_pem));
  X509* const certificate = owner.get();
  const uint32_t flags = X509_get_extension_flags(certificate);
  if ((flags & EXFLAG_INVALID) != 0) {
    return absl::InvalidArgumentError("the certificate has an extension that cannot be read");
  }
  CertificateFacts facts;
  ASSIGN_OR_RETURN(facts.common_name, openssl::ReadCommonName(certificate));
  RETURN_IF_ERROR(openssl::ReadNames(certificate, facts));
  ASSIGN_OR_RETURN(facts.not_before, openssl::ReadTime(X509_get0_notBefore(certificate)));
  ASSIGN_OR_RETURN(facts.not_after, openssl::ReadTime(X509_get0_notAfter(certificate)));
  const uint32_t usages =
      (flags & EXFLAG_XKUSAGE) != 0 ? X509_get_extended_key_usage(certificate) : 0;
  facts.server = (usages & XKU_SSL_SERVER) != 0;
  facts.client = (usages & XKU_SSL_CLIENT) != 0;
  return facts;
}

absl::StatusOr<std::string> Fingerprint(absl::string_view certificate_pem) {
  const ErrorScope scope;
  ASSIGN_OR_RETURN(const Certificate certificate, openssl::ParseCertificate(certificate_pem));
  std::string digest(32, '\0');
  if (X509_digest(certificate.get(), EVP_sha256(), reinterpret_cast<unsigned char*>(digest.data()),
                  nullptr) != 1) {
    return CannotMake("a fingerprint");
  }
  return absl::StrCat("sha256:", absl::BytesToHexString(digest));
}

std::vector<std::string> SplitCertificates(absl::string_view certificates_pem) {
  constexpr absl::string_view kEnd = "-----END CERTIFICATE-----\n";
  std::vector<std::string> certificates;
  for (;;) {
    const size_t end = certificates_pem.find(kEnd);
    if (end == certificates_pem.npos) return certificates;
    certificates.emplace_back(certificates_pem.substr(0, end + kEnd.size()));
    certificates_pem.remove_prefix(end + kEnd.size());
  }
}

absl::StatusOr<std::string> FindCertificate(absl::string_view certificates_pem,
                                            absl::string_view fingerprint) {
  for (std::string& one : SplitCertificates(certificates_pem)) {
    const absl::StatusOr<std::string> found = Fingerprint(one);
    if (found.ok() && *found == fingerprint) return std::move(one);
  }
  return absl::NotFoundError(absl::StrCat("no certificate has the fingerprint ", fingerprint));
}

absl::StatusOr<std::string> KeyFingerprint(absl::string_view request_pem) {
  const ErrorScope scope;
  ASSIGN_OR_RETURN(const Request request, ParseRequest(request_pem));
  const Bio der(BIO_new(BIO_s_mem()));
  if (der == nullptr || i2d_PUBKEY_bio(der.get(), X509_REQ_get0_pubkey(request.get())) != 1) {
    return CannotMake("a key's fingerprint");
  }
  Sha256 digest;
  digest.Update(openssl::Text(der));
  return digest.HexDigest();
}

absl::Status CheckTime(absl::string_view certificate_pem, absl::Time now) {
  const ErrorScope scope;
  ASSIGN_OR_RETURN(const Certificate certificate, openssl::ParseCertificate(certificate_pem));
  return CheckTime(certificate.get(), now);
}

absl::Status CheckIdentity(const Identity& identity, absl::Time now) {
  const ErrorScope scope;
  ASSIGN_OR_RETURN(const Key key, openssl::ParseKey(identity.key_pem));
  const Bio bio = openssl::Reader(identity.certificate_pem);
  for (int i = 0;; ++i) {
    const Certificate certificate(
        PEM_read_bio_X509(bio.get(), nullptr, openssl::NoPassphrase, nullptr));
    if (certificate == nullptr) {
      // The end of the text is an error, too, and the only one that means that everything was read.
      const unsigned long error = ERR_peek_last_error();
      if (i > 0 && ERR_GET_LIB(error) == ERR_LIB_PEM &&
          ERR_GET_REASON(error) == PEM_R_NO_START_LINE) {
        return absl::OkStatus();
      }
      return Error(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("certificate ", i + 1, " of the identity cannot be read"));
    }
    if (i == 0 && X509_check_private_key(certificate.get(), key.get()) != 1) {
      return Error(absl::StatusCode::kInvalidArgument,
                   "the private key is not the one in the certificate");
    }
    RETURN_IF_ERROR(CheckTime(certificate.get(), now));
  }
}

}  // namespace trainyard
