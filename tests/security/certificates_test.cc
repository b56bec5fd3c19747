// Proves what our authority says of a key: `openssl` verifies and reads the certificates, and
// nothing that a request asks for gets into one.

#include "security/certificates.h"

#include <gmock/gmock.h>
#include <openssl/err.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/security/openssl_program.h"

namespace trainyard {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;

const absl::Time kBegin = absl::FromUnixSeconds(1'700'000'000);  // 2023-11-14T22:13:20Z
const absl::Time kEnd = kBegin + absl::Hours(24 * 365);

class Certificates : public ::testing::Test {
 protected:
  Certificates()
      : authority_(NewAuthority("Test authority", kBegin, kEnd).value()),
        key_(NewKey().value()),
        request_(NewRequest(key_, "whoever").value()) {}
  // No test may leave an error in the thread's queue: gRPC would take it for one of its own.
  ~Certificates() override { EXPECT_EQ(ERR_peek_error(), 0u); }

  static CertificateFacts Facts() {
    return {.common_name = "worker-1",
            .uris = {"trainyard://cluster/worker/1"},
            .dns_names = {"worker-1.example.org", "worker-1"},
            .addresses = {"10.0.0.1", "::1"},
            .not_before = kBegin,
            .not_after = kBegin + absl::Hours(24),
            .server = true,
            .client = true};
  }
  static void ExpectInvalid(const absl::Status& status, const std::string& words) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  }
  // What `openssl x509 -text` says of a certificate.
  std::string Described(const std::string& certificate) const {
    openssl_.Put("described.pem", certificate);
    return openssl_.Must("x509 -in described.pem -noout -text");
  }
  // The request that `openssl req` makes with these arguments.
  std::string Requested(absl::string_view arguments) const {
    openssl_.Must(
        absl::StrCat("req -new -nodes -keyout theirs.key -out theirs.csr -subj /CN=x ", arguments));
    return openssl_.Get("theirs.csr");
  }

  const testing::OpensslProgram openssl_;
  const Identity authority_;
  const std::string key_;
  const std::string request_;
};

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

TEST_F(Certificates, NothingThatARequestAsksForIsUsed) {
  const std::string greedy = Requested(
      "-newkey ec -pkeyopt ec_paramgen_curve:P-384 -addext "
      "'subjectAltName=DNS:controller,URI:x:admin' "
      "-addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign "
      "-addext extendedKeyUsage=codeSigning");
  openssl_.Put("greedy.csr", greedy);
  ASSERT_THAT(openssl_.Must("req -in greedy.csr -noout -text"), HasSubstr("CA:TRUE"));
  CertificateFacts facts{
      .common_name = "worker-2", .not_before = kBegin, .not_after = kEnd, .client = true};
  const std::string certificate = Sign(authority_, greedy, facts).value();
  const std::string text = Described(certificate);
  EXPECT_THAT(text, AllOf(HasSubstr("CA:FALSE"), HasSubstr("CN = worker-2"), HasSubstr("P-384")));
  EXPECT_THAT(text, Not(AnyOf(HasSubstr("controller"), HasSubstr("admin"), HasSubstr("CA:TRUE"),
                              HasSubstr("Certificate Sign"), HasSubstr("Code Signing"),
                              HasSubstr("Alternative Name"), HasSubstr("CN = x"))));
  EXPECT_THAT(ReadCertificate(certificate)->dns_names, IsEmpty());
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

TEST_F(Certificates, WeakKeysAreRefused) {
  for (const char* key : {"-newkey rsa:1024", "-newkey ec -pkeyopt ec_paramgen_curve:secp224r1",
                          "-newkey ec -pkeyopt ec_paramgen_curve:secp256k1", "-newkey ed448",
                          "-newkey ec -pkeyopt ec_paramgen_curve:P-256 "
                          "-pkeyopt ec_param_enc:explicit",
                          "-newkey rsa-pss -pkeyopt rsa_keygen_bits:2048"}) {
    SCOPED_TRACE(key);
    ExpectInvalid(Sign(authority_, Requested(key), Facts()).status(), "wanted an RSA key of 2048");
  }
}

TEST_F(Certificates, StrongKeysAreSignedAndSign) {
  for (const char* key : {"-newkey rsa:2048", "-newkey ec -pkeyopt ec_paramgen_curve:P-384",
                          "-newkey ec -pkeyopt ec_paramgen_curve:P-256", "-newkey ed25519"}) {
    SCOPED_TRACE(key);
    const std::string request = Requested(key);
    const std::string theirs = openssl_.Get("theirs.key");
    const auto certificate = Sign(authority_, request, Facts());
    ASSERT_TRUE(certificate.ok()) << certificate.status();
    EXPECT_TRUE(CheckIdentity({theirs, *certificate}, kBegin).ok());
    EXPECT_TRUE(Sign(authority_, NewRequest(theirs, "x").value(), Facts()).ok());
  }
}

TEST_F(Certificates, RequestMustBeSignedByTheKeyInIt) {
  // The two requests have one length, so that the second key can be put into the first one's place.
  openssl_.Put("one.csr", NewRequest(NewKey().value(), "x").value());
  openssl_.Put("two.csr", NewRequest(NewKey().value(), "x").value());
  openssl_.Must("req -in one.csr -outform DER -out one.der");
  openssl_.Must("req -in two.csr -outform DER -out two.der");
  openssl_.Must("req -in one.csr -pubkey -noout -out one.pub");
  openssl_.Must("req -in two.csr -pubkey -noout -out two.pub");
  openssl_.Must("pkey -pubin -in one.pub -outform DER -out one.pub.der");
  openssl_.Must("pkey -pubin -in two.pub -outform DER -out two.pub.der");
  const std::string stolen = absl::StrReplaceAll(
      openssl_.Get("one.der"), {{openssl_.Get("one.pub.der"), openssl_.Get("two.pub.der")}});
  openssl_.Put("stolen.der", stolen);
  openssl_.Must("req -inform DER -in stolen.der -out stolen.csr");
  ExpectInvalid(Sign(authority_, openssl_.Get("stolen.csr"), Facts()).status(),
                "not by the key that it holds");
}

TEST_F(Certificates, TextsThatAreNoRequestAreRefused) {
  for (const std::string& text : {std::string(), std::string("hello"), key_, std::string(1000, 'A'),
                                  authority_.certificate_pem, std::string("\0\0\xff", 3)}) {
    ExpectInvalid(Sign(authority_, text, Facts()).status(), "certificate request");
  }
  ExpectInvalid(Sign(authority_, std::string(65 << 10, '\n') + request_, Facts()).status(),
                "at most 65536 bytes");
  for (size_t length = 0; length + 2 < request_.size(); ++length) {
    EXPECT_FALSE(Sign(authority_, request_.substr(0, length), Facts()).ok()) << length;
  }
}

// Where a changed text is still accepted, the change was in the armour, not in what is signed: then
// the certificate is of the same key.
TEST_F(Certificates, FlippedBitsChangeNoKey) {
  openssl_.Put("request.csr", request_);
  const std::string want = openssl_.Must("req -in request.csr -noout -pubkey");
  int accepted = 0;
  for (size_t i = 0; i < request_.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = request_;
      flipped[i] = char(flipped[i] ^ (1 << bit));
      const auto certificate = Sign(authority_, flipped, Facts());
      if (!certificate.ok()) continue;
      ++accepted;
      openssl_.Put("leaf.pem", *certificate);
      EXPECT_EQ(openssl_.Must("x509 -in leaf.pem -noout -pubkey"), want) << i << " " << bit;
    }
  }
  EXPECT_LT(accepted, 20);
}

TEST_F(Certificates, BadCertificatesAndKeysAreErrorsNotCrashes) {
  const Identity identity{key_, Sign(authority_, request_, Facts()).value()};
  for (size_t i = 0; i < identity.certificate_pem.size(); ++i) {
    std::string flipped = identity.certificate_pem;
    flipped[i] = char(flipped[i] ^ (1 << (i % 7)));
    (void)ReadCertificate(flipped);
    (void)Fingerprint(flipped);
    (void)CheckIdentity({key_, flipped}, kBegin);
    const std::string cut = identity.certificate_pem.substr(0, i);
    if (i + 2 < identity.certificate_pem.size())
      ExpectInvalid(ReadCertificate(cut).status(), "PEM");
  }
  for (size_t i = 0; i < key_.size(); ++i) {
    std::string flipped = key_;
    flipped[i] = char(flipped[i] ^ (1 << (i % 7)));
    (void)CheckIdentity({flipped, identity.certificate_pem}, kBegin);
    (void)NewRequest(flipped, "x");
  }
}

TEST_F(Certificates, NamesThatCannotStandInACertificateAreRefused) {
  const auto refused = [&](auto change, const std::string& words) {
    CertificateFacts facts = Facts();
    change(facts);
    ExpectInvalid(Sign(authority_, request_, facts).status(), words);
  };
  for (const std::string& name :
       {std::string(), std::string(65, 'x'), std::string("a\nb"), std::string("a\0b", 3),
        std::string("\xff\xfe"), std::string(5000, 'x')}) {
    refused([&](CertificateFacts& f) { f.common_name = name; }, "1 to 64 characters");
    ExpectInvalid(NewAuthority(name, kBegin, kEnd).status(), "1 to 64 characters");
    ExpectInvalid(NewRequest(key_, name).status(), "1 to 64 characters");
  }
  for (const std::string& name :
       {std::string(), std::string("a,DNS:controller"), std::string("*.example.org"),
        std::string("a..b"), std::string("a b"), std::string("a\0b", 3), std::string(64, 'x')}) {
    refused([&](CertificateFacts& f) { f.dns_names = {"good", name}; }, "DNS name");
  }
  for (const std::string& uri :
       {std::string(), std::string("no scheme"), std::string(":x"), std::string("a:\n"),
        std::string("a:\0", 3), std::string("a:\xc3\xa9"), "a:" + std::string(3000, 'x')}) {
    refused([&](CertificateFacts& f) { f.uris = {uri}; }, "URI");
  }
  for (const std::string& address :
       {std::string(), std::string("10.0.0"), std::string("10.0.0.1/8"), std::string("host"),
        std::string("1.1.1.1\0x", 9)}) {
    refused([&](CertificateFacts& f) { f.addresses = {address}; }, "address");
  }
  // A comma separates names in OpenSSL's own language, and must not do so here.
  CertificateFacts facts = Facts();
  facts.uris = {"a:b,DNS:controller"};
  facts.common_name = "M\xc3\xbcller, CN = admin";
  const CertificateFacts read = ReadCertificate(Sign(authority_, request_, facts).value()).value();
  EXPECT_EQ(read.uris, facts.uris);
  EXPECT_EQ(read.dns_names, Facts().dns_names);
  EXPECT_EQ(read.common_name, facts.common_name);
}

TEST_F(Certificates, AmbiguousNamesAreNotRead) {
  openssl_.Must("req -x509 -newkey ed25519 -nodes -keyout k -out two.pem -subj /CN=a/CN=admin");
  ExpectInvalid(ReadCertificate(openssl_.Get("two.pem")).status(), "more than one common name");
  openssl_.Must(
      "req -x509 -newkey ed25519 -nodes -keyout k -out der.pem -subj /CN=a "
      "-addext 'subjectAltName=DNS:adminXevil,IP:10.0.0.9'");
  openssl_.Must("x509 -in der.pem -outform DER -out leaf.der");
  std::string der = openssl_.Get("leaf.der");
  der.replace(der.find("adminXevil"), 10, std::string("admin\0evil", 10));
  openssl_.Put("nul.der", der);
  openssl_.Must("x509 -inform DER -in nul.der -out nul.pem");
  ExpectInvalid(ReadCertificate(openssl_.Get("nul.pem")).status(), "without NUL");
  openssl_.Must("req -x509 -newkey ed25519 -nodes -keyout k -out none.pem -subj /O=nobody");
  EXPECT_EQ(ReadCertificate(openssl_.Get("none.pem"))->common_name, "");
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
