// A client that speaks TLS with OpenSSL, so that the server's GnuTLS is not tested by itself.

#pragma once

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <signal.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/check.h"
#include "security/certificates.h"
#include "tests/common/http_peers.h"

namespace trainyard::testing {

struct TlsClient {
  std::string authorities;                // PEM. The server's certificate must be theirs.
  std::optional<Identity> identity = {};  // What it shows to the server.
  int version = 0;                        // TLS1_1_VERSION ..; 0: any from 1.2 on.
  std::string request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
};

struct TlsAnswer {
  std::string text;     // What the server said; empty if there was no connection.
  std::string version;  // "TLSv1.3"; empty if the handshake failed on this side.
  std::string server;   // The issuer of the server's certificate.
};

namespace internal {

template <typename T, void (*Free)(T*)>
struct Freed {
  void operator()(T* object) const { Free(object); }
};
template <typename T, void (*Free)(T*)>
using Owned = std::unique_ptr<T, Freed<T, Free>>;
using Certificate = Owned<X509, X509_free>;
using Text = Owned<BIO, BIO_free_all>;

inline Text Read(absl::string_view pem) {
  return Text(BIO_new_mem_buf(pem.data(), int(pem.size())));
}

inline void Trust(SSL_CTX* context, absl::string_view authorities) {
  const Text text = Read(authorities);
  while (X509* const next = PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr)) {
    const Certificate owned(next);
    CHECK(X509_STORE_add_cert(SSL_CTX_get_cert_store(context), next) == 1);
  }
  ERR_clear_error();  // The end of the text.
}

inline void Show(SSL_CTX* context, const Identity& identity) {
  const Certificate certificate(
      PEM_read_bio_X509(Read(identity.certificate_pem).get(), nullptr, nullptr, nullptr));
  const Owned<EVP_PKEY, EVP_PKEY_free> key(
      PEM_read_bio_PrivateKey(Read(identity.key_pem).get(), nullptr, nullptr, nullptr));
  CHECK(SSL_CTX_use_certificate(context, certificate.get()) == 1);
  CHECK(SSL_CTX_use_PrivateKey(context, key.get()) == 1);
}

}  // namespace internal

// Makes its request over one connection. Ends without an answer if either side refuses the other.
inline TlsAnswer GetWithTls(int port, const TlsClient& client) {
  // OpenSSL writes to connections that the server has ended, as our programs may.
  ::signal(SIGPIPE, SIG_IGN);
  const internal::Owned<SSL_CTX, SSL_CTX_free> context(SSL_CTX_new(TLS_client_method()));
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  internal::Trust(context.get(), client.authorities);
  if (client.identity) internal::Show(context.get(), *client.identity);
  if (client.version != 0) {
    SSL_CTX_set_security_level(context.get(), 0);  // Above it, OpenSSL itself refuses TLS 1.1.
    CHECK(SSL_CTX_set_min_proto_version(context.get(), client.version) == 1);
    CHECK(SSL_CTX_set_max_proto_version(context.get(), client.version) == 1);
  }
  const HttpPeer peer(port);
  const internal::Owned<SSL, SSL_free> session(SSL_new(context.get()));
  SSL_set_fd(session.get(), peer.fd());
  TlsAnswer answer;
  if (SSL_connect(session.get()) == 1) {
    answer.version = SSL_get_version(session.get());
    const internal::Certificate theirs(SSL_get1_peer_certificate(session.get()));
    char issuer[256] = {};
    X509_NAME_oneline(X509_get_issuer_name(theirs.get()), issuer, sizeof(issuer));
    answer.server = issuer;
    (void)SSL_write(session.get(), client.request.data(), int(client.request.size()));
    char bytes[4096];
    int got = 0;
    while ((got = SSL_read(session.get(), bytes, sizeof(bytes))) > 0) {
      answer.text.append(bytes, size_t(got));
    }
  }
  ERR_clear_error();
  return answer;
}

}  // namespace trainyard::testing
