// Decides who gets into a controller. On loopback, the controller's own user gets in by a token.
// Elsewhere, callers get in over TLS with the cluster's authority. Grants count on both. This class
// owns the gate and everything that the gate uses.

#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/http/credentials.h"
#include "common/net/address.h"
#include "controller/access/gate.h"
#include "controller/access/grants.h"
#include "controller/access/issuers.h"
#include "controller/book/believed_time.h"
#include "controller/metrics.h"
#include "controller/service/tls.h"
#include "controller/workers/ticker.h"
#include "security/authority.h"

namespace trainyard::controller {

struct AccessOptions {
  std::string state_directory;
  // The directory for the token of callers on this machine: HOME/.config/trainyard. Empty: the
  // token is written to the state directory alone.
  std::string config_directory = {};
  // A certificate of the user's own, which proves the controller instead of the authority's.
  std::optional<ServerCertificate> certificate = {};
  std::string issuers_file = {};  // Issuers reads it; empty: there are no issuers.
};

class AccessControl {
 public:
  // For a controller that listens at `listen`, which has the real port. Grants end by `time`. The
  // references must outlive the object. FAILED_PRECONDITION: the address is off loopback and there
  // is no authority yet, or a file cannot be used.
  static absl::StatusOr<std::unique_ptr<AccessControl>> Create(const AccessOptions& options,
                                                               const Address& listen,
                                                               const BelievedTime& time,
                                                               ControllerMetrics& metrics,
                                                               Audit& audit);
  ~AccessControl();

  // For the server's connections. They make gRPC ask the gate about every call.
  const std::shared_ptr<grpc::ServerCredentials>& credentials() const { return credentials_; }
  Gate& gate() { return *gate_; }
  Grants& grants() { return *grants_; }
  const Authority* authority() const { return authority_ ? &*authority_ : nullptr; }
  // The token of the user on this machine. Empty: the controller serves TLS, and has no such token.
  std::string local_token() const;
  // For pages: reads the files as they are now. Absent: a controller on loopback has no TLS.
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
  bool published_ = false;       // Whether the token lies in the config directory.
  absl::Duration renewal_look_;  // When to look next; a monotonic reading. The ticker's thread's.
  Ticker ticker_;
  Ticker issuers_ticker_;  // Separate, so that a file on a mount that hangs delays no revocation.
};

}  // namespace trainyard::controller
