// Certificates, and requests for them, which machines that join send. The first line says which;
// the rest is DER, or a whole text in PEM.

#include "security/certificates.h"

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "tests/fuzz/input.h"

namespace trainyard {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

std::string InPem(absl::string_view bytes, absl::string_view what) {
  if (absl::StartsWith(bytes, "-----BEGIN")) return std::string(bytes);
  return absl::StrCat("-----BEGIN ", what, "-----\n", absl::Base64Escape(bytes), "\n-----END ",
                      what, "-----\n");
}

void CheckCertificate(const std::string& pem) {
  const auto facts = ReadCertificate(pem);
  const auto fingerprint = Fingerprint(pem);
  if (!facts.ok()) return fuzz::CheckRefusal(facts.status());
  CHECK(fingerprint.ok() && FindCertificate(pem, *fingerprint).ok());
  // Who compares a name must not be shown the part before a NUL.
  CHECK(facts->common_name.find('\0') == std::string::npos);
  for (const auto* names : {&facts->uris, &facts->dns_names, &facts->addresses}) {
    for (const std::string& name : *names) CHECK(name.find('\0') == std::string::npos);
  }
}

void CheckRequest(const std::string& pem) {
  static const auto authority =
      NewAuthority("fuzz", kNow - absl::Hours(24), kNow + absl::Hours(24 * 365));
  CHECK(authority.ok()) << authority.status().ToString();
  const CertificateFacts facts = {.common_name = "node-1",
                                  .uris = {"trainyard://worker/w#g"},
                                  .dns_names = {"worker.trainyard"},
                                  .not_before = kNow,
                                  .not_after = kNow + absl::Hours(24),
                                  .client = true};
  const auto key = KeyFingerprint(pem);
  const auto made = Sign(*authority, pem, facts);
  if (!made.ok()) return fuzz::CheckRefusal(made.status());
  CHECK(key.ok()) << key.status().ToString();
  // Whatever the request asks for, the certificate says what the authority says.
  const auto read = ReadCertificate(*made);
  CHECK(read.ok()) << read.status().ToString();
  CHECK(read->common_name == facts.common_name && read->uris == facts.uris &&
        read->dns_names == facts.dns_names && read->addresses.empty() && !read->server);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const bool request = input.Line() == "request";
  if (request) {
    CheckRequest(InPem(input.Rest(), "CERTIFICATE REQUEST"));
  } else {
    CheckCertificate(InPem(input.Rest(), "CERTIFICATE"));
  }
  return 0;
}

}  // namespace trainyard
