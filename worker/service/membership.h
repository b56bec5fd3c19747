// What a worker shows its controller. On the controller's own machine that is the token of the
// controller's user. Elsewhere it is a certificate: the worker makes a key, joins with a token that
// it was given, and renews the certificate for as long as it runs. All that lies in DIRECTORY:
//
//   key.pem           mode 0600; made once, and shown to nobody
//   certificate.pem   what the cluster's authority says of the key
//   authority.pem     the authority's certificate, by which the worker also knows the controller,
//                     unless the user names another authority for that
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

  // For the next connection. Joins where that has not been done, or the certificate has expired.
  // Errors: FindCredential's, those of the controller, UNAVAILABLE.
  absl::StatusOr<Credential> Current() ABSL_LOCKS_EXCLUDED(mutex_);
  // For pages, as of now. Absent: the worker has no certificate.
  std::optional<TlsMaterial> PageTls() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  explicit Membership(MembershipOptions options) : options_(std::move(options)) {}
  std::string Path(const char* name) const { return options_.directory + "/" + name; }
  absl::Status ReadFiles() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ReadInvitation() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Expired() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What a connection shows, and wants to see.
  Credential Shown(const std::string& token, const Identity& identity)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Join() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The cluster's authority, of the certificates that the controller sent.
  absl::StatusOr<std::string> AuthorityOf(const std::string& certificates) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Accept(const std::string& certificates) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void KeepRenewed();
  absl::Status Renew();

  const MembershipOptions options_;
  Mutex mutex_;
  CondVar changed_;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  Invitation invitation_ ABSL_GUARDED_BY(mutex_);
  Identity identity_ ABSL_GUARDED_BY(mutex_);
  std::string authority_ ABSL_GUARDED_BY(mutex_);       // The cluster's. Empty: not joined yet.
  std::string by_which_known_ ABSL_GUARDED_BY(mutex_);  // The controller; empty: by the same.
  bool by_token_ = false;  // What the places say, in place of a certificate.
  std::thread renewal_;
};

}  // namespace trainyard
