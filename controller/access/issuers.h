// Who else says who somebody is: the issuers of an organisation's JSON Web Tokens, and the role
// that each of their people and machines has here. A file says so, which may be changed while the
// controller runs:
//
//   corp:                                   # the first part of the names of its people: corp:ada
//     issuer: https://login.example.org     # the claim iss
//     audience: trainyard                   # the claim aud, or one of its strings
//     algorithms: [RS256]                   # of RS256, ES256 and EdDSA
//     keys: /etc/trainyard/corp.jwks        # the issuer's JWKS, a file
//     longest: 12h                          # tokens that are good for longer are refused; or: 24h
//     rules:                                # the first that accepts a token's claims gives the
//     role
//     - {claims: {groups: [ml-ops, sre]}, role: operator}
//     - {claims: {groups: research}, role: submitter, namespace: research}
//     - {claims: {sub: "system:serviceaccount:train:worker"}, role: joiner, hosts: "gpu-*"}
//
// The files must be writable for nobody but their owner, who is root or the controller's user.

#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "controller/access/principal.h"
#include "security/jwt.h"
#include "security/key_set.h"

namespace trainyard::controller {

struct ClaimsRule {
  // A rule accepts a token that has all of these claims, each with one of its values. A claim of
  // the token is a string or an array of strings.
  std::map<std::string, std::vector<std::string>> claims;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  std::string name_space = {};
  std::string hosts = {};
};

struct Issuer {
  std::string name;
  JwtPolicy policy;
  std::string keys_file;
  std::vector<ClaimsRule> rules;
};

// INVALID_ARGUMENT with all violations.
absl::StatusOr<std::vector<Issuer>> ParseIssuers(const std::string& yaml);

// Thread-safe.
class Issuers {
 public:
  // Empty path: no issuers. Errors: those of reading and parsing the file and the keys. `clock`
  // outlives the issuers.
  static absl::StatusOr<std::unique_ptr<Issuers>> Open(const std::string& path, const Clock& clock);

  // Whose token this is. UNAUTHENTICATED: VerifyJwt's (security/jwt.h), or none of the issuers made
  // the token. PERMISSION_DENIED: no rule of the issuer accepts the token's claims. The message
  // names the claims that the rules look at, and no other part of the token.
  absl::StatusOr<Principal> Authenticate(absl::string_view jwt) const;

  // Reads the files again. Where the issuers' file cannot be read or parsed, all stays as it was.
  // Where an issuer's keys cannot, that issuer keeps the keys that it had. Both are logged, once.
  void Refresh();

 private:
  struct Known {
    Issuer issuer;
    std::optional<KeySet> keys;  // Absent: they could not be read so far.
  };
  Issuers(std::string path, const Clock& clock) : path_(std::move(path)), clock_(clock) {}
  // Sets `news` if the files are not as they were the last time.
  absl::Status Read(bool& news);
  std::optional<KeySet> KeysSoFar(const Issuer& issuer) const;

  const std::string path_;
  const Clock& clock_;
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<const Known>> known_ ABSL_GUARDED_BY(mutex_);
  std::string seen_;  // Open's, then Refresh's: the texts of the files, or why there are none.
};

}  // namespace trainyard::controller
