// What a worker shows its controller. On the controller's own machine that is the token of the
// controller's user. Elsewhere it is a certificate: the worker makes a key, joins with a token that
// it was given, and renews the certificate for as long as it runs. All that lies in DIRECTORY:
//
//   key.pem           mode 0600; made once, and shown to nobody
//   certificate.pem   what the cluster's authority says of the key
//   authority.pem     the authority's certificate, by which the worker also knows the controller,
//                     unless the user names another authority for that
//   joined_with       the SHA-256 of the token that the worker joined with: a worker that is
//   revoked
//                     joins by another token, and not by this one
//
// Thread-safe.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/address.h"
#include "common/http/credentials.h"
#include "common/mutex.h"
#include "security/credentials.h"

namespace trainyard {

struct MembershipOptions {
  Address controller;
  std::string directory;  // The worker's own.
  // With an invitation (security/credentials.h), or with a JSON Web Token of an issuer that the
  // controller knows; empty: none. Read again whenever the worker joins, because such tokens are
  // good for an hour or so, and whoever mounts the file keeps it fresh.
  std::string join_file = {};
  CredentialPlaces places = {};  // The token's and the other authority's.
  std::string worker_id;
  std::string hostname;
};

class Membership {
 public:
  // FAILED_PRECONDITION: what lies in the directory cannot be used, or the controller is on another
  // machine, and there is neither a certificate nor a join file. Asks no controller.
  static absl::StatusOr<std::unique_ptr<Membership>> Open(MembershipOptions options);
  ~Membership();

  // For the next connection. Joins where that has not been done, the certificate has expired, or it
  // has been refused and there is a new token; that may take a minute.
  // Errors: FindCredential's, those of the controller, UNAVAILABLE.
  absl::StatusOr<Credential> Current() ABSL_LOCKS_EXCLUDED(joining_, mutex_);
  // The controller says that it does not know what Current has returned.
  void Refused() ABSL_LOCKS_EXCLUDED(mutex_);
  // For pages, as of now. Absent: the worker has no certificate. Waits for no join.
  std::optional<TlsMaterial> PageTls() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  explicit Membership(MembershipOptions options) : options_(std::move(options)) {}
  std::string Path(const char* name) const { return options_.directory + "/" + name; }
  absl::Status ReadFiles() ABSL_EXCLUSIVE_LOCKS_REQUIRED(joining_);
  absl::Status ReadInvitation() ABSL_EXCLUSIVE_LOCKS_REQUIRED(joining_);
  bool HasAnotherToken() ABSL_EXCLUSIVE_LOCKS_REQUIRED(joining_);
  bool Expired() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What a connection shows, and wants to see.
  Credential Shown(const std::string& token, const Identity& identity)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Where that fails, says what is wrong with the certificate that the worker has, too.
  absl::Status Join() ABSL_EXCLUSIVE_LOCKS_REQUIRED(joining_);
  absl::Status TryToJoin() ABSL_EXCLUSIVE_LOCKS_REQUIRED(joining_);
  // Why the worker cannot come in by its certificate.
  std::string Lack() ABSL_LOCKS_EXCLUDED(mutex_);
  // Made where there is none.
  absl::StatusOr<std::string> Key() ABSL_EXCLUSIVE_LOCKS_REQUIRED(joining_);
  // The cluster's authority, of the certificates that the controller sent.
  absl::StatusOr<std::string> AuthorityOf(const std::string& certificates) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(joining_);
  absl::Status Write(const Identity& identity) ABSL_EXCLUSIVE_LOCKS_REQUIRED(joining_);
  void KeepRenewed();
  absl::Status Renew();

  const MembershipOptions options_;
  // These two are the same from Open on.
  std::string by_which_known_;  // The controller; empty: by the cluster's authority.
  bool by_token_ = false;       // What the places say, in place of a certificate.

  Mutex joining_;  // Before mutex_. Whoever joins, or writes the files, which may take long.
  Invitation invitation_ ABSL_GUARDED_BY(joining_);
  std::string joined_with_ ABSL_GUARDED_BY(joining_);  // Empty: unknown.
  bool has_joined_ ABSL_GUARDED_BY(joining_) = false;  // Since Open.

  Mutex mutex_;  // Nobody waits with it.
  CondVar changed_;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool refused_ ABSL_GUARDED_BY(mutex_) = false;
  Identity identity_ ABSL_GUARDED_BY(mutex_);
  std::string authority_ ABSL_GUARDED_BY(mutex_);  // The cluster's. Empty: not joined yet.
  std::thread renewal_;
};

}  // namespace trainyard
