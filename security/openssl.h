// Owners of OpenSSL's objects, and its errors as a Status. Only the .cc files of security/ and
// their tests include this header; what the other headers of security/ declare is free of OpenSSL.

#pragma once

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::openssl {

template <auto Free>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
template <typename T, auto Free>
using Owned = std::unique_ptr<T, Deleter<Free>>;

using Bio = Owned<BIO, BIO_free_all>;
using Key = Owned<EVP_PKEY, EVP_PKEY_free>;
using Certificate = Owned<X509, X509_free>;
using Request = Owned<X509_REQ, X509_REQ_free>;
using Extension = Owned<X509_EXTENSION, X509_EXTENSION_free>;
using Names = Owned<GENERAL_NAMES, GENERAL_NAMES_free>;

// Removes OpenSSL's errors when a function returns. OpenSSL collects errors in a queue of the
// thread, and gRPC reads the same queue. Every public function of security/ has an ErrorScope.
class ErrorScope {
 public:
  ErrorScope() { ERR_set_mark(); }
  ~ErrorScope() { ERR_pop_to_mark(); }
  ErrorScope(const ErrorScope&) = delete;
  ErrorScope& operator=(const ErrorScope&) = delete;
};

// Returns "what: reason", with the last reason that OpenSSL gave on this thread.
absl::Status Error(absl::StatusCode code, absl::string_view what);

// The callback with which all readers of PEM ask for a passphrase. It refuses. With OpenSSL's own
// callback, a stranger's text could make a service ask on its terminal, and wait.
int NoPassphrase(char* text, int size, int writing, void* context);

// Reads the first private key of a PEM text. INVALID_ARGUMENT: there is none, or it is encrypted.
absl::StatusOr<Key> ParseKey(absl::string_view pem);
// Reads the first certificate of a PEM text. INVALID_ARGUMENT: there is none.
absl::StatusOr<Certificate> ParseCertificate(absl::string_view pem);
// A memory BIO that reads `text`, which must outlive it.
Bio Reader(absl::string_view text);
// Returns the text that was written to a memory BIO.
std::string Text(const Bio& bio);

// Returns the digest for signatures of this key. Null for Ed25519, which has its own digest.
const EVP_MD* SigningDigest(const EVP_PKEY* key);
// Checks that a key is strong. INVALID_ARGUMENT: the key is neither RSA of 2048 to 8192 bits, nor
// P-256, P-384 or Ed25519.
absl::Status CheckStrength(EVP_PKEY* key);

}  // namespace trainyard::openssl
