// Proves that nothing which a request asks for gets into a certificate, and that damaged, hostile
// and ambiguous texts are refused.

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/security/test_authority.h"

namespace trainyard {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using testing::Certificates;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kBegin;
using testing::kEnd;
using ::testing::Not;

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

}  // namespace
}  // namespace trainyard
