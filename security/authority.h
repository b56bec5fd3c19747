// The certificate authority of a cluster. By its certificates, the controller and the workers know
// each other. The authority's files lie in one directory:
//
//   authority.key   mode 0600; whoever has this key can make workers and controllers
//   authority.pem   the authority's certificate, by which clients know the controller
//   server.pem      mode 0600: the controller's key and certificate, and the authority's again
//
// Not thread-safe, except that any thread may call Sign.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "security/certificates.h"

namespace trainyard {

// Certificates hold from three days before they are made. So a machine whose clock is wrong by up
// to three days can connect. This costs no security, because nobody had the key before.
inline constexpr absl::Duration kClocksDiffer = absl::Hours(72);
inline constexpr absl::Duration kAuthorityHolds = absl::Hours(24 * 3650);
// The controller and the workers renew theirs when a third of the time is left.
inline constexpr absl::Duration kCertificatesHold = absl::Hours(24 * 30);

// Whether a certificate should be renewed by now.
bool RenewalIsDue(const CertificateFacts& facts, absl::Time now);

// Returns facts with these hosts, which are names or numeric addresses. INVALID_ARGUMENT: `hosts`
// is empty.
absl::StatusOr<CertificateFacts> FactsOfHosts(const std::vector<std::string>& hosts);

class Authority {
 public:
  // Makes the directory, a new authority, and a certificate for a controller that others reach by
  // these hosts. If there is an authority already, makes only the certificate. INVALID_ARGUMENT:
  // there is no host, or one is not valid.
  static absl::Status Init(const std::string& directory, const std::vector<std::string>& hosts,
                           absl::Time now);
  // NOT_FOUND: there is no authority. FAILED_PRECONDITION: a file cannot be used; the message says
  // which and why.
  static absl::StatusOr<Authority> Open(const std::string& directory, absl::Time now);

  const std::string& certificate() const { return identity_.certificate_pem; }  // PEM.
  const std::string& fingerprint() const { return fingerprint_; }
  std::string server_path() const { return directory_ + "/server.pem"; }
  std::string certificate_path() const { return directory_ + "/authority.pem"; }

  // Does the same as Sign of certificates.h, and appends the authority's certificate.
  absl::StatusOr<std::string> Sign(const std::string& request_pem,
                                   const CertificateFacts& facts) const;
  // Replaces server.pem if its renewal is due. Returns whether it did.
  absl::StatusOr<bool> RenewServer(absl::Time now) const;

 private:
  Authority(std::string directory, Identity identity, std::string fingerprint);
  absl::Status WriteServer(CertificateFacts hosts, absl::Time now) const;

  std::string directory_;
  Identity identity_;
  std::string fingerprint_;
};

}  // namespace trainyard
