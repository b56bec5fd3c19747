// The credential that a worker shows its controller. On the controller's own machine, the
// credential is the token of the controller's user. Elsewhere it is a certificate: the worker makes
// a key, joins with a token, and renews the certificate while it runs. The files lie in DIRECTORY:
//
//   key.pem           mode 0600; made once, and shown to nobody
//   certificate.pem   what the cluster's authority says of the key
//   authority.pem     the authority's certificate, by which the worker also knows the controller,
//                     unless the user names another authority for that
//   joined_with       the SHA-256 of the token that the worker joined with; after a revocation, the
//                     worker joins only with another token
//
// Thread-safe.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/http/credentials.h"
#include "common/mutex.h"
#include "common/net/address.h"
#include "security/credentials.h"

namespace trainyard {

struct MembershipOptions {
  Address controller;
  std::string directory;  // The worker's own.
  // A file with an invitation (security/credentials.h), or with a JSON Web Token of an issuer that
  // the controller knows. Empty: there is none. The worker reads the file again whenever it joins,
  // because such tokens are good for about an hour, and somebody keeps the file fresh.
  std::string join_file = {};
  CredentialPlaces places = {};  // Where to find the token and the user's own authority.
  std::string worker_id;
  std::string hostname;
};

class Membership {
 public:
  // Reads the files; does not call the controller. FAILED_PRECONDITION: a file cannot be used, or
  // the controller is on another machine and there is neither a certificate nor a join file.
  static absl::StatusOr<std::unique_ptr<Membership>> Open(MembershipOptions options);
  ~Membership();

  // Returns the credential for the next connection. Joins first if the worker has no certificate,
  // or the certificate has expired, or the controller has refused the certificate and there is a
  // new token. To join may take a minute. Errors: those of FindCredential and of the controller;
  // UNAVAILABLE.
  absl::StatusOr<Credential> Current() ABSL_LOCKS_EXCLUDED(joining_, mutex_);
  // Notes that the controller does not know the credential that Current has returned.
  void Refused() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the present certificate for the worker's pages. Absent: there is none. Does not wait
  // for a join that is under way.
  std::optional<TlsMaterial> PageTls() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  explicit Membership(MembershipOptions options) : options_(std::move(options)) {}
  std::string Path(const char* name) const { return options_.directory + "/" + name; }
  absl::Status ReadFiles() ABSL_EXCLUSIVE_LOCKS_REQUIRED(joining_);
  absl::Status ReadInvitation() ABSL_EXCLUSIVE_LOCKS_REQUIRED(joining_);
  bool HasAnotherToken() ABSL_EXCLUSIVE_LOCKS_REQUIRED(joining_);
  bool Expired() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns what a connection shows to the controller, and how the controller must prove itself.
  Credential Shown(const std::string& token, const Identity& identity)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // If joining fails, the error also says what is wrong with the worker's certificate.
  absl::Status Join() ABSL_EXCLUSIVE_LOCKS_REQUIRED(joining_);
  absl::Status TryToJoin() ABSL_EXCLUSIVE_LOCKS_REQUIRED(joining_);
  // Returns why the worker cannot connect with its certificate.
  std::string Lack() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the worker's key. Makes one if there is none.
  absl::StatusOr<std::string> Key() ABSL_EXCLUSIVE_LOCKS_REQUIRED(joining_);
  // Returns the cluster's authority from the certificates that the controller has sent.
  absl::StatusOr<std::string> AuthorityOf(const std::string& certificates) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(joining_);
  absl::Status Write(const Identity& identity) ABSL_EXCLUSIVE_LOCKS_REQUIRED(joining_);
  void KeepRenewed();
  absl::Status Renew();

  const MembershipOptions options_;
  // These two do not change after Open.
  // The authority that proves the controller. Empty: the cluster's own authority does.
  std::string by_which_known_;
  bool by_token_ = false;  // The worker shows a token from `places`, and no certificate.

  // Held while the worker joins or writes its files, which may take long. Taken before mutex_.
  Mutex joining_;
  Invitation invitation_ ABSL_GUARDED_BY(joining_);
  std::string joined_with_ ABSL_GUARDED_BY(joining_);  // Empty: unknown.
  bool has_joined_ ABSL_GUARDED_BY(joining_) = false;  // Since Open.
  std::string complaint_ ABSL_GUARDED_BY(joining_);    // About the join file; was logged last.

  Mutex mutex_;  // Never held while anything slow is done.
  CondVar changed_;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool refused_ ABSL_GUARDED_BY(mutex_) = false;
  Identity identity_ ABSL_GUARDED_BY(mutex_);
  std::string authority_ ABSL_GUARDED_BY(mutex_);  // The cluster's. Empty: not joined yet.
  std::thread renewal_;
};

}  // namespace trainyard
