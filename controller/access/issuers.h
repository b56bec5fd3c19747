// The issuers of an organisation's JSON Web Tokens, and the role that each of their people and
// machines has here. A file lists them. The file may be changed while the controller runs:
//
//   corp:                                   # the first part of the names of its people: corp:ada
//     issuer: https://login.example.org     # the claim iss
//     audience: trainyard                   # the claim aud, or one of its strings
//     algorithms: [RS256]                   # of RS256, ES256 and EdDSA
//     keys: /etc/trainyard/corp.jwks        # the issuer's JWKS, a file
//     longest: 12h                          # refuses tokens that are good for longer; absent: 24h
//     rules:                                # the first that accepts a token gives the role
//     - {claims: {groups: [ml-ops, sre]}, role: operator}
//     - {claims: {groups: research}, role: submitter, namespace: research}
//     - {claims: {sub: "system:serviceaccount:train:worker"}, role: joiner, hosts: "gpu-*"}
//
// Nobody but the owner of these files may be able to write to them. The owner is root or the
// controller's user.

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

  // Returns whose token this is. UNAUTHENTICATED: VerifyJwt (security/jwt.h) refuses the token, or
  // none of the issuers has made it. PERMISSION_DENIED: no rule of the issuer accepts the token's
  // claims. The message names the claims that the rules look at, and no other part of the token.
  absl::StatusOr<Principal> Authenticate(absl::string_view jwt) const;

  // Reads the files again. If the issuers' file cannot be read or parsed, nothing changes. If the
  // keys of an issuer cannot be read or parsed, the issuer keeps its old keys. The log says so
  // once.
  void Refresh();

 private:
  struct Known {
    Issuer issuer;
    std::optional<KeySet> keys;  // Absent: they could not be read so far.
  };
  Issuers(std::string path, const Clock& clock) : path_(std::move(path)), clock_(clock) {}
  // Sets `news` to whether the files have changed since the last call.
  absl::Status Read(bool& news);
  std::optional<KeySet> KeysSoFar(const Issuer& issuer) const;

  const std::string path_;
  const Clock& clock_;
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<const Known>> known_ ABSL_GUARDED_BY(mutex_);
  // The texts of the files, or why they could not be read. Used by Open, then by Refresh alone.
  std::string seen_;
};

}  // namespace trainyard::controller
