// Bearer tokens: secrets that prove who a caller is. The service keeps only the hash of a token's
// secret, under the token's id.
//
//   ty_4fJk02Lq_<43 characters of a random number of 256 bits><6 characters of a checksum>
//
// All functions may be called from any thread.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard {

struct Token {
  std::string id;      // 8 letters and digits; public.
  std::string secret;  // 49 letters and digits: 256 random bits, and a checksum of all before it.
  std::string text;    // "ty_" + id + "_" + secret: what the user gets and shows.
};

// Makes a token. INTERNAL: the operating system gives no random bytes.
absl::StatusOr<Token> NewToken();

// Takes a token's text apart. By the checksum, users can tell a token that was cut or mistyped from
// one that was revoked, and scanners find tokens in public places. The checksum proves nothing:
// SameSecret decides whether the secret is right.
// INVALID_ARGUMENT: the text is not a token, or its checksum is wrong. The message quotes no part
// of the text. Callers answer UNAUTHENTICATED for a token that is well formed and unknown.
absl::StatusOr<Token> ParseToken(absl::string_view text);

// Returns the SHA-256 of the token's secret, in hexadecimal. Passwords need a slow hash, because
// people choose passwords that can be guessed. Nobody can guess one of 2^256 random secrets, even
// with a fast hash.
std::string HashSecret(const Token& token);

// Returns whether two hashes or two secrets are equal. The time depends only on their lengths, so
// nobody learns from the time how many characters are right.
bool SameSecret(absl::string_view a, absl::string_view b);

}  // namespace trainyard
