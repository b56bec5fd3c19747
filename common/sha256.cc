#include "common/sha256.h"

#include <openssl/evp.h>

#include "absl/strings/escaping.h"
#include "common/check.h"

namespace trainyard {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  CHECK(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1);
}
Sha256::~Sha256() = default;

void Sha256::Update(const void* data, size_t bytes) {
  CHECK(EVP_DigestUpdate(state_->context, data, bytes) == 1);
}

std::string Sha256Of(absl::string_view text) {
  Sha256 hash;
  hash.Update(text);
  return hash.HexDigest();
}

std::string Sha256::HexDigest() {
  std::string digest(32, '\0');
  CHECK(EVP_DigestFinal_ex(state_->context, reinterpret_cast<unsigned char*>(digest.data()),
                           nullptr) == 1);
  return absl::BytesToHexString(digest);
}

}  // namespace trainyard
