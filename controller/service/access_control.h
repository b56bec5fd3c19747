// All that decides who gets into a controller: on loopback the token of its own user, elsewhere TLS
// with the cluster's authority, and on both the grants. Owns what the gate looks into.

#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/address.h"
#include "common/clock.h"
#include "common/http/credentials.h"
#include "controller/access/gate.h"
#include "controller/access/grants.h"
#include "controller/access/issuers.h"
#include "controller/metrics.h"
#include "controller/service/tls.h"
#include "controller/workers/ticker.h"
#include "security/authority.h"

namespace trainyard::controller {

struct AccessOptions {
  std::string state_directory;
  // Where the token for callers on this machine goes, HOME/.config/trainyard; empty: nowhere but
  // into the state directory.
  std::string config_directory = {};
  // The user's own, which proves the controller in place of one of the authority's.
  std::optional<ServerCertificate> certificate = {};
  std::string issuers_file = {};  // Issuers'; empty: none.
};

class AccessControl {
 public:
  // Of a controller that listens at `listen`, with the real port. FAILED_PRECONDITION: off loopback
  // there is no authority yet, or a file cannot be used. The references outlive it.
  static absl::StatusOr<std::unique_ptr<AccessControl>> Create(const AccessOptions& options,
                                                               const Address& listen,
                                                               const Clock& clock,
                                                               ControllerMetrics& metrics,
                                                               Audit& audit);
  ~AccessControl();

  // For the server's connections: with them goes the gate.
  const std::shared_ptr<grpc::ServerCredentials>& credentials() const { return credentials_; }
  Gate& gate() { return *gate_; }
  Grants& grants() { return *grants_; }
  const Authority* authority() const { return authority_ ? &*authority_ : nullptr; }
  // Of the user on this machine; empty: there is TLS.
  std::string local_token() const;
  // For pages: as the files are now. Absent: on loopback, without TLS.
  absl::StatusOr<std::optional<TlsMaterial>> PageTls() const;

 private:
  AccessControl(const AccessOptions& options, const Address& listen, const Clock& clock,
                ControllerMetrics& metrics)
      : options_(options), listen_(listen), clock_(clock), metrics_(metrics) {}
  absl::Status OpenLoopback(Audit& audit);
  absl::Status OpenTls(Audit& audit);
  bool RenewCertificate();  // Whether that went well.
  void ShowExpiry();
  void Tick();

  const AccessOptions options_;
  const Address listen_;
  const Clock& clock_;
  ControllerMetrics& metrics_;
  std::optional<Authority> authority_;
  ServerCertificate certificate_;
  std::unique_ptr<Grants> grants_;
  std::unique_ptr<Issuers> issuers_;
  std::shared_ptr<Gate> gate_;
  std::shared_ptr<grpc::ServerCredentials> credentials_;
  bool published_ = false;       // In the config directory.
  absl::Duration renewal_look_;  // The next one; a monotonic reading. The ticker's.
  Ticker ticker_;
  Ticker issuers_ticker_;  // Of its own: a file on a mount that hangs delays no revocation.
};

}  // namespace trainyard::controller
