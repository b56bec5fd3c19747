#include "controller/service/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/build_info.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "controller/service/call_meter.h"

namespace trainyard::controller {
namespace {

constexpr int kMaxReceiveBytes = 1 << 20;

// Both sides set these, or the server cuts off clients that ping.
constexpr int kKeepaliveMilliseconds = 20'000;
constexpr int kKeepaliveTimeoutMilliseconds = 10'000;
constexpr int kMinPingIntervalMilliseconds = 10'000;

// For calls to end by themselves on the way out; streams never do.
constexpr auto kShutdownGrace = std::chrono::milliseconds(200);

void Configure(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(kMaxReceiveBytes);
  // Two controllers must not share a port by accident.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMilliseconds);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMilliseconds);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinPingIntervalMilliseconds);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      const Clock& clock) {
  RETURN_IF_ERROR(CheckListen(options.listen, options.insecure));
  if (!options.listen.loopback()) {
    LogWarning("insecure",
               {{"listen", options.listen.ToString()},
                {"meaning", "no TLS: anybody who reaches this port controls the jobs"}});
  }
  std::unique_ptr<Server> server(new Server());
  ASSIGN_OR_RETURN(server->store_,
                   SqliteStore::Open(options.state_directory, {}, options.recovery));
  ASSIGN_OR_RETURN(server->book_,
                   JobBook::Create(clock, *server->store_, server->metrics_, options.limits));
  server->coordinator_ = std::make_unique<Coordinator>(
      clock, *server->book_, server->metrics_, [ticker = &server->ticker_] { ticker->Wake(); },
      options.coordinator);
  server->executor_ = std::make_unique<Executor>();
  RETURN_IF_ERROR(server->Listen(options));
  server->metrics_.build_info
      .Add({{"version", Version()},
            {"revision", Revision()},
            {"cuda", CudaVersion()},
            {"nccl", "none"}})
      .Set(1);
  server->ticker_.Start(options.tick_every,
                        [coordinator = server->coordinator_.get()] { coordinator->Tick(); });
  server->KeepBackups(options, clock);
  return server;
}

void Server::KeepBackups(const ServerOptions& options, const Clock& clock) {
  metrics_.store_backup_failures_total.Add({});
  if (options.backup_every <= absl::ZeroDuration()) return;
  backups_ = std::make_unique<BackupKeeper>(
      clock,
      BackupOptions{options.state_directory, options.recovery.backup_directory,
                    options.backup_every},
      [this, &clock](const absl::Status& status) {
        if (!status.ok()) return metrics_.store_backup_failures_total.Add({}).Increment();
        metrics_.store_last_backup_timestamp_seconds.Add({}).Set(
            absl::ToDoubleSeconds(clock.Now() - absl::UnixEpoch()));
      });
}

absl::Status Server::Listen(const ServerOptions& options) {
  job_service_ = std::make_unique<JobService>(*book_, *coordinator_, *executor_);
  cluster_service_ = std::make_unique<ClusterService>(*coordinator_);
  worker_service_ = std::make_unique<WorkerService>(*coordinator_);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  Configure(builder);
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> meters;
  meters.push_back(std::make_unique<CallMeterFactory>(metrics_));
  builder.experimental().SetInterceptorCreators(std::move(meters));
  address_ = options.listen;
  builder.AddListeningPort(address_.ToString(), grpc::InsecureServerCredentials(), &address_.port);
  builder.RegisterService(job_service_.get());
  builder.RegisterService(cluster_service_.get());
  builder.RegisterService(worker_service_.get());
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || address_.port == 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", options.listen.ToString(),
                                               ": is another controller running there?"));
  }
  return absl::OkStatus();
}

Server::~Server() {
  backups_.reset();
  // Shutdown waits for every call, and a call may wait for a write that the disk does not take:
  // closing the store, after the time for normal writes, answers those.
  std::thread calls([this] {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
  });
  std::this_thread::sleep_for(kShutdownGrace);
  ticker_.Stop();
  if (store_ != nullptr) store_->Close();
  calls.join();
  server_.reset();
  executor_.reset();
}

}  // namespace trainyard::controller
