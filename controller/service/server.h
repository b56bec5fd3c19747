// The controller as one object: store, book, coordinator and the gRPC server around them.

#pragma once

#include <grpcpp/grpcpp.h>
#include <prometheus/registry.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "controller/access/audit.h"
#include "controller/access/namespaces.h"
#include "controller/book/believed_time.h"
#include "controller/book/job_book.h"
#include "controller/metrics.h"
#include "controller/page/site.h"
#include "controller/service/acceptor.h"
#include "controller/service/access_control.h"
#include "controller/service/access_service.h"
#include "controller/service/cluster_service.h"
#include "controller/service/executor.h"
#include "controller/service/job_service.h"
#include "controller/service/open_streams.h"
#include "controller/service/worker_service.h"
#include "controller/store/backup_keeper.h"
#include "controller/store/sqlite_store.h"
#include "controller/workers/coordinator.h"
#include "controller/workers/ticker.h"

namespace trainyard::controller {

struct ServerOptions {
  std::string state_directory;
  Address listen;
  std::string config_directory;  // This and the next two: as in AccessOptions.
  std::optional<ServerCertificate> certificate;
  std::string issuers_file;
  std::string namespaces_file;  // Namespaces reads it; empty: every namespace exists.
  CoordinatorOptions coordinator;
  JobBookLimits limits;
  absl::Duration tick_every = absl::Milliseconds(250);
  StoreRecovery recovery;
  absl::Duration backup_every;  // Into recovery.backup_directory. Zero: no backups.
};

class Server {
 public:
  // The server serves when this returns. Errors: those of the store (sqlite_store.h), and of
  // AccessControl::Create. UNAVAILABLE: the server cannot listen on the address.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       const Clock& clock);

  // Ends calls, finishes writes, and leaves the jobs running on their workers.
  ~Server();

  const Address& address() const { return acceptor_->address(); }  // With the real port.
  const AccessControl& access() const { return *access_; }
  // Answers readers of pages, until the server is gone.
  Site& site() { return *site_; }
  // The registry of the metrics page. It may outlive the server; its numbers then stay as they are.
  const std::shared_ptr<prometheus::Registry>& registry() const { return registry_; }

 private:
  Server() : registry_(std::make_shared<prometheus::Registry>()), metrics_(*registry_) {}
  absl::Status Serve(const Clock& clock);
  // Ends the streams and the workers of callers who are no longer let in.
  void SweepCallers();
  void KeepBackups(const ServerOptions& options, const Clock& clock);

  const std::shared_ptr<prometheus::Registry> registry_;
  ControllerMetrics metrics_;
  Ticker ticker_;
  Ticker namespaces_ticker_;
  Ticker streams_ticker_;
  std::unique_ptr<BelievedTime> time_;
  std::unique_ptr<SqliteStore> store_;
  std::unique_ptr<JobBook> book_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Audit> audit_;
  std::unique_ptr<Namespaces> namespaces_;
  std::unique_ptr<AccessControl> access_;
  std::unique_ptr<Site> site_;
  std::unique_ptr<OpenStreams> streams_;
  ConnectionUsers users_;
  std::unique_ptr<AccessService> access_service_;
  std::unique_ptr<JobService> job_service_;
  std::unique_ptr<ClusterService> cluster_service_;
  std::unique_ptr<WorkerService> worker_service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<BackupKeeper> backups_;
};

}  // namespace trainyard::controller
