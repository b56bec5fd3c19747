// Proves what our authority says of a key: the program openssl verifies and reads its certificates.

#include <algorithm>
#include <vector>

#include "tests/security/test_authority.h"

namespace trainyard {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using testing::Certificates;
using ::testing::HasSubstr;
using testing::kBegin;
using testing::kEnd;
using ::testing::Not;

TEST_F(Certificates, KeyIsP256AndReadByOthers) {
  EXPECT_THAT(key_, HasSubstr("BEGIN PRIVATE KEY"));
  EXPECT_NE(NewKey().value(), key_);
  openssl_.Put("key.pem", key_);
  EXPECT_THAT(openssl_.Must("pkey -in key.pem -noout -text -check"),
              AllOf(HasSubstr("NIST CURVE: P-256"), HasSubstr("Key is valid")));
}

TEST_F(Certificates, AuthorityMaySignCertificatesAndNothingElse) {
  const std::string text = Described(authority_.certificate_pem);
  EXPECT_THAT(text,
              HasSubstr("X509v3 Basic Constraints: critical\n                CA:TRUE, pathlen:0"));
  EXPECT_THAT(text,
              HasSubstr("X509v3 Key Usage: critical\n                Certificate Sign, CRL Sign"));
  EXPECT_THAT(text, HasSubstr("X509v3 Subject Key Identifier:"));
  EXPECT_THAT(text, HasSubstr("Subject: CN = Test authority"));
  EXPECT_THAT(text, HasSubstr("Issuer: CN = Test authority"));
  EXPECT_THAT(text, HasSubstr("Not Before: Nov 14 22:13:20 2023 GMT"));
  EXPECT_TRUE(CheckIdentity(authority_, kBegin).ok());
}

TEST_F(Certificates, RequestIsSignedByItsKey) {
  openssl_.Put("request.pem", request_);
  EXPECT_THAT(openssl_.Must("req -in request.pem -noout -verify -text"),
              AllOf(HasSubstr("verify OK"), HasSubstr("Subject: CN = whoever"),
                    HasSubstr("Attributes:\n            (none)")));
  ExpectInvalid(NewRequest("no key", "x").status(), "private key");
  ExpectInvalid(NewRequest(authority_.certificate_pem, "x").status(), "private key");
}

TEST_F(Certificates, SignedCertificateSaysTheFacts) {
  const std::string certificate = Sign(authority_, request_, Facts()).value();
  const std::string text = Described(certificate);
  EXPECT_THAT(text, HasSubstr("Subject: CN = worker-1\n"));
  EXPECT_THAT(text, HasSubstr("Issuer: CN = Test authority\n"));
  EXPECT_THAT(text, HasSubstr("X509v3 Basic Constraints: critical\n                CA:FALSE\n"));
  EXPECT_THAT(text, HasSubstr("X509v3 Key Usage: critical\n                Digital Signature\n"));
  EXPECT_THAT(text,
              HasSubstr("Extended Key Usage: \n                TLS Web Server Authentication, "
                        "TLS Web Client Authentication\n"));
  EXPECT_THAT(text, HasSubstr("X509v3 Authority Key Identifier:"));
  EXPECT_THAT(text, HasSubstr("X509v3 Subject Key Identifier:"));
  EXPECT_THAT(text, HasSubstr("URI:trainyard://cluster/worker/1, DNS:worker-1.example.org, "
                              "DNS:worker-1, IP Address:10.0.0.1, IP Address:0:0:0:0:0:0:0:1\n"));
  openssl_.Put("ca.pem", authority_.certificate_pem);
  openssl_.Put("leaf.pem", certificate);
  openssl_.Must(
      absl::StrCat("verify -x509_strict -attime ", absl::ToUnixSeconds(kBegin),
                   " -purpose sslserver -verify_hostname worker-1 -CAfile ca.pem leaf.pem"));
  // The identifier of the issuer's key is the one that the issuer has.
  EXPECT_EQ(openssl_.Must("x509 -in leaf.pem -noout -ext authorityKeyIdentifier").substr(44),
            openssl_.Must("x509 -in ca.pem -noout -ext subjectKeyIdentifier").substr(42));
}

TEST_F(Certificates, WhatIsReadIsWhatWasSigned) {
  const CertificateFacts read =
      ReadCertificate(Sign(authority_, request_, Facts()).value()).value();
  EXPECT_EQ(read.common_name, Facts().common_name);
  EXPECT_EQ(read.uris, Facts().uris);
  EXPECT_EQ(read.dns_names, Facts().dns_names);
  EXPECT_EQ(read.addresses, Facts().addresses);
  EXPECT_EQ(read.not_before, Facts().not_before);
  EXPECT_EQ(read.not_after, Facts().not_after);
  EXPECT_TRUE(read.server && read.client);
}

TEST_F(Certificates, UsageIsOneOfTwoOrBothButNeverEverything) {
  CertificateFacts facts = Facts();
  facts.server = false;
  const std::string client = Sign(authority_, request_, facts).value();
  EXPECT_THAT(Described(client), AllOf(HasSubstr("TLS Web Client"), Not(HasSubstr("Web Server"))));
  EXPECT_FALSE(ReadCertificate(client)->server);
  EXPECT_TRUE(ReadCertificate(client)->client);
  facts.client = false;
  ExpectInvalid(Sign(authority_, request_, facts).status(), "a server, a client or both");
  facts.server = true;
  const std::string server = Sign(authority_, request_, facts).value();
  EXPECT_TRUE(ReadCertificate(server)->server);
  EXPECT_FALSE(ReadCertificate(server)->client);
  // The authority's certificate does not say what TLS may use it for.
  EXPECT_FALSE(ReadCertificate(authority_.certificate_pem)->server);
  EXPECT_FALSE(ReadCertificate(authority_.certificate_pem)->client);
}

TEST_F(Certificates, SerialsAreRandomAndHave128Bits) {
  std::vector<std::string> serials;
  for (int i = 0; i < 20; ++i) {
    openssl_.Put("leaf.pem", Sign(authority_, request_, Facts()).value());
    serials.push_back(openssl_.Must("x509 -in leaf.pem -noout -serial"));
  }
  size_t longest = 0;
  for (const std::string& serial : serials) longest = std::max(longest, serial.size());
  EXPECT_EQ(longest, absl::string_view("serial=\n").size() + 32) << "of " << serials[0];
  std::sort(serials.begin(), serials.end());
  EXPECT_EQ(std::unique(serials.begin(), serials.end()), serials.end());
}

TEST_F(Certificates, CertificateHoldsNoLongerThanItsAuthority) {
  CertificateFacts facts = Facts();
  facts.not_after = kEnd + absl::Hours(1);
  EXPECT_EQ(ReadCertificate(Sign(authority_, request_, facts).value())->not_after, kEnd);
  facts.not_after = absl::InfiniteFuture();
  EXPECT_EQ(ReadCertificate(Sign(authority_, request_, facts).value())->not_after, kEnd);
  facts.not_before = kEnd + absl::Seconds(1);
  EXPECT_EQ(Sign(authority_, request_, facts).status().code(),
            absl::StatusCode::kFailedPrecondition);
  facts = Facts();
  facts.not_after = facts.not_before - absl::Seconds(1);
  ExpectInvalid(Sign(authority_, request_, facts).status(), "ends after it begins");
  facts.not_before = absl::InfinitePast();
  ExpectInvalid(Sign(authority_, request_, facts).status(), "years 1 to 9999");
  ExpectInvalid(NewAuthority("x", kBegin, absl::InfiniteFuture()).status(), "years 1 to 9999");
}

TEST_F(Certificates, OnlyAnAuthoritySigns) {
  const Identity worker{key_, Sign(authority_, request_, Facts()).value()};
  EXPECT_EQ(Sign(worker, request_, Facts()).status().code(), absl::StatusCode::kFailedPrecondition);
  const Identity mixed{key_, authority_.certificate_pem};
  const absl::Status status = Sign(mixed, request_, Facts()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("not the one in its certificate"));
  ExpectInvalid(Sign({"", authority_.certificate_pem}, request_, Facts()).status(), "private key");
}

TEST_F(Certificates, FingerprintIsThatOfTheDer) {
  openssl_.Put("leaf.pem", Sign(authority_, request_, Facts()).value());
  openssl_.Must("x509 -in leaf.pem -outform DER -out leaf.der");
  const std::string want = openssl_.Must("dgst -sha256 -r leaf.der").substr(0, 64);
  EXPECT_EQ(Fingerprint(openssl_.Get("leaf.pem") + authority_.certificate_pem).value(),
            "sha256:" + want);
  ExpectInvalid(Fingerprint("").status(), "certificate in PEM");
}

TEST_F(Certificates, IdentityIsCheckedWithItsClock) {
  const Identity identity{key_, Sign(authority_, request_, Facts()).value()};
  const absl::Time last = Facts().not_after;
  const auto check = [](const Identity& checked, absl::Time now) {
    const absl::Status status = CheckIdentity(checked, now);
    EXPECT_THAT(status.code(), AnyOf(absl::StatusCode::kOk, absl::StatusCode::kFailedPrecondition));
    return std::string(status.message());
  };
  EXPECT_EQ(check(identity, kBegin), "");
  EXPECT_EQ(check(identity, last), "");
  EXPECT_THAT(check(identity, kBegin - absl::Seconds(1)),
              HasSubstr("'worker-1' is valid from 2023-11-14T22:13:20Z only"));
  EXPECT_THAT(check(identity, last + absl::Seconds(1)),
              HasSubstr("'worker-1' expired after 2023-11-15T22:13:20Z"));
  // The chain is part of the identity.
  const Identity old = NewAuthority("Old", kBegin, kBegin + absl::Hours(1)).value();
  Identity chained = identity;
  chained.certificate_pem += old.certificate_pem;
  EXPECT_EQ(check(chained, kBegin), "");
  EXPECT_THAT(check(chained, kBegin + absl::Hours(2)), HasSubstr("'Old' expired"));
}

TEST_F(Certificates, IdentityMustBelongTogether) {
  const std::string certificate = Sign(authority_, request_, Facts()).value();
  ExpectInvalid(CheckIdentity({NewKey().value(), certificate}, kBegin), "not the one");
  ExpectInvalid(CheckIdentity({key_, ""}, kBegin), "certificate 1 of the identity");
  ExpectInvalid(CheckIdentity({"", certificate}, kBegin), "private key");
  const std::string cut = authority_.certificate_pem.substr(0, 200);
  ExpectInvalid(CheckIdentity({key_, certificate + cut}, kBegin), "certificate 2 of the identity");
}

}  // namespace
}  // namespace trainyard
