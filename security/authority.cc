#include "security/authority.h"

#include <arpa/inet.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "security/secret_file.h"

namespace trainyard {
namespace {

bool IsNumeric(const std::string& host) {
  in6_addr ignored;
  return ::inet_pton(AF_INET, host.c_str(), &ignored) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &ignored) == 1;
}

absl::Status In(const std::string& path, const absl::Status& status) {
  return absl::FailedPreconditionError(absl::StrCat(path, ": ", status.message()));
}

absl::StatusOr<Identity> ReadAuthority(const std::string& directory) {
  Identity identity;
  ASSIGN_OR_RETURN(identity.key_pem, ReadSecret(directory + "/authority.key"));
  ASSIGN_OR_RETURN(identity.certificate_pem,
                   ReadRegularFile(directory + "/authority.pem", 64 << 10));
  return identity;
}

}  // namespace

bool RenewalIsDue(const CertificateFacts& facts, absl::Time now) {
  return facts.not_after - now < (facts.not_after - facts.not_before) / 3;
}

absl::StatusOr<CertificateFacts> FactsOfHosts(const std::vector<std::string>& hosts) {
  if (hosts.empty()) {
    return absl::InvalidArgumentError("wanted a host by which the controller is reached");
  }
  CertificateFacts facts;
  for (const std::string& host : hosts) {
    (IsNumeric(host) ? facts.addresses : facts.dns_names).push_back(host);
  }
  return facts;
}

Authority::Authority(std::string directory, Identity identity, std::string fingerprint)
    : directory_(std::move(directory)),
      identity_(std::move(identity)),
      fingerprint_(std::move(fingerprint)) {}

absl::Status Authority::Init(const std::string& directory, const std::vector<std::string>& hosts,
                             absl::Time now) {
  ASSIGN_OR_RETURN(CertificateFacts facts, FactsOfHosts(hosts));
  RETURN_IF_ERROR(MakeSecretDirectory(directory));
  absl::StatusOr<Authority> authority = Open(directory, now);
  if (absl::IsNotFound(authority.status())) {
    ASSIGN_OR_RETURN(const Identity made,
                     NewAuthority("Trainyard", now - kClocksDiffer, now + kAuthorityHolds));
    // The key is written first: a certificate without a key would look like an authority whose key
    // is lost.
    RETURN_IF_ERROR(WriteSecret(directory + "/authority.key", made.key_pem));
    RETURN_IF_ERROR(WriteFileAtomic(directory + "/authority.pem", made.certificate_pem));
    authority = Open(directory, now);
  }
  RETURN_IF_ERROR(authority.status());
  return authority->WriteServer(std::move(facts), now);
}

absl::StatusOr<Authority> Authority::Open(const std::string& directory, absl::Time now) {
  const std::string path = directory + "/authority.pem";
  ASSIGN_OR_RETURN(Identity identity, ReadAuthority(directory));
  if (absl::Status status = CheckIdentity(identity, now); !status.ok()) {
    return In(path, absl::FailedPreconditionError(absl::StrCat(
                        status.message(), ". For a new authority, move ", directory,
                        " away and run 'trainyard-controller init' (docs/access.md, \"When "
                        "something is lost\")")));
  }
  ASSIGN_OR_RETURN(std::string fingerprint, Fingerprint(identity.certificate_pem));
  return Authority(directory, std::move(identity), std::move(fingerprint));
}

absl::StatusOr<std::string> Authority::Sign(const std::string& request_pem,
                                            const CertificateFacts& facts) const {
  ASSIGN_OR_RETURN(const std::string signed_pem, trainyard::Sign(identity_, request_pem, facts));
  return absl::StrCat(signed_pem, identity_.certificate_pem);
}

absl::Status Authority::WriteServer(CertificateFacts hosts, absl::Time now) const {
  hosts.common_name = "Trainyard controller";
  hosts.not_before = now - kClocksDiffer;
  hosts.not_after = now + kCertificatesHold;
  hosts.server = true;
  ASSIGN_OR_RETURN(const std::string key, NewKey());
  ASSIGN_OR_RETURN(const std::string request, NewRequest(key, hosts.common_name));
  ASSIGN_OR_RETURN(const std::string certificates, Sign(request, hosts));
  // Everything is in one file, so that nobody reads a key with the certificate of another key.
  return WriteSecret(server_path(), absl::StrCat(key, certificates));
}

absl::StatusOr<bool> Authority::RenewServer(absl::Time now) const {
  ASSIGN_OR_RETURN(const std::string pem, ReadSecret(server_path()));
  const absl::StatusOr<CertificateFacts> facts = ReadCertificate(pem);
  if (!facts.ok()) return In(server_path(), facts.status());
  if (!RenewalIsDue(*facts, now)) return false;
  RETURN_IF_ERROR(WriteServer(*facts, now));
  return true;
}

}  // namespace trainyard
