// The certificate authority of a cluster: a directory that says who the controller and the workers
// are, to each other.
//
//   authority.key   mode 0600; whoever has it can make workers and controllers
//   authority.pem   its certificate, by which clients know the controller
//   server.pem      mode 0600: the controller's key and certificate, and the authority's again
//
// Not thread-safe, but for Sign, which any thread may call.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "security/certificates.h"

namespace trainyard {

// Certificates hold from three days before they are made, so that a machine whose clock is wrong by
// that much is not shut out. Nothing is lost by it: nobody had the key before.
inline constexpr absl::Duration kClocksDiffer = absl::Hours(72);
inline constexpr absl::Duration kAuthorityHolds = absl::Hours(24 * 3650);
// The controller and the workers renew theirs when a third of the time is left.
inline constexpr absl::Duration kCertificatesHold = absl::Hours(24 * 30);

// Whether a certificate should be renewed by now.
bool RenewalIsDue(const CertificateFacts& facts, absl::Time now);

// Hosts by name or number, as in a certificate. INVALID_ARGUMENT: not a host.
absl::StatusOr<CertificateFacts> FactsOfHosts(const std::vector<std::string>& hosts);

class Authority {
 public:
  // Makes the directory, with a new authority and a certificate for a controller that is reached by
  // these hosts; where there is an authority, makes the certificate alone. INVALID_ARGUMENT: no
  // host, or a bad one.
  static absl::Status Init(const std::string& directory, const std::vector<std::string>& hosts,
                           absl::Time now);
  // NOT_FOUND: there is none. FAILED_PRECONDITION: a file cannot be used; says which and why.
  static absl::StatusOr<Authority> Open(const std::string& directory, absl::Time now);

  const std::string& certificate() const { return identity_.certificate_pem; }  // PEM.
  const std::string& fingerprint() const { return fingerprint_; }
  std::string server_path() const { return directory_ + "/server.pem"; }
  std::string certificate_path() const { return directory_ + "/authority.pem"; }

  // As Sign of certificates.h, and with the authority's certificate behind it.
  absl::StatusOr<std::string> Sign(const std::string& request_pem,
                                   const CertificateFacts& facts) const;
  // Replaces server.pem where its renewal is due. True: it did.
  absl::StatusOr<bool> RenewServer(absl::Time now) const;

 private:
  Authority(std::string directory, Identity identity, std::string fingerprint);
  absl::Status WriteServer(CertificateFacts hosts, absl::Time now) const;

  std::string directory_;
  Identity identity_;
  std::string fingerprint_;
};

}  // namespace trainyard
