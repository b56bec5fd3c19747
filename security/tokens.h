// Bearer tokens: a secret that says who somebody is to whoever he shows it. The service keeps the
// hash of a token's secret under the token's id, and never the token.
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

// Takes a token's text apart. The checksum tells a token that was cut or mistyped from one that was
// revoked, and lets scanners find tokens in public places. It proves nothing: whether the secret is
// the right one, SameSecret says.
// INVALID_ARGUMENT: the text is no token, or its checksum is wrong; the message names no part of
// it.
//   Callers answer a token that is well formed, and unknown, with UNAUTHENTICATED.
absl::StatusOr<Token> ParseToken(absl::string_view text);

// Returns the SHA-256 of the token's secret, in hexadecimal. A password needs a slow hash because
// people choose ones that can be guessed; among 2^256 random secrets nobody guesses, however fast
// the hash.
std::string HashSecret(const Token& token);

// Returns whether two hashes or two secrets are equal. The time this takes depends on their lengths
// alone, so nobody learns from it how many characters are right.
bool SameSecret(absl::string_view a, absl::string_view b);

// Replaces all that looks like a token, or like the larger part of one, for logs and messages: by
// "ty_<id>_..." where the id can be told, otherwise by "ty_...".
std::string Redact(absl::string_view text);

}  // namespace trainyard
