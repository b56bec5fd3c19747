#include "controller/service/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/build_info.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "controller/service/call_meter.h"
#include "controller/service/caller_watch.h"
#include "controller/service/limits.h"

namespace trainyard::controller {
namespace {

constexpr int kKeepaliveMilliseconds = 20'000;
constexpr int kKeepaliveTimeoutMilliseconds = 10'000;

// A peer that has not begun to speak HTTP/2 within this time is cut off. Later, a peer without a
// call is cut off. Clients then connect again when they need to. An open stream is a call.
constexpr int kHandshakeMilliseconds = 8'000;
constexpr int kIdleMilliseconds = 60'000;

// How much gRPC reads at once of one connection, and works on before it looks at another.
constexpr int kMaxReadBytes = 4 << 10;

constexpr absl::Duration kLookAtNamespacesEvery = absl::Seconds(1);
constexpr absl::Duration kLookAtCallersEvery = absl::Seconds(1);

// Returns how many streams one caller may have. A program may follow a few hundred jobs. If few
// connections are possible, no caller may take most of them.
size_t MostStreams() { return std::clamp<size_t>(MostConnections() / 8, 16, 256); }

// How long calls may take to end at shutdown. Streams never end by themselves.
constexpr auto kShutdownGrace = std::chrono::milliseconds(200);

// Boundaries from 0.25 ms, less than a sync takes on any disk, to 8 s, each twice the one before.
prometheus::Histogram::BucketBoundaries CommitBuckets() {
  prometheus::Histogram::BucketBoundaries bounds;
  for (double bound = 0.00025; bound < 10; bound *= 2) bounds.push_back(bound);
  return bounds;
}

void Configure(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(kMaxReceiveBytes);
  // The limit counts what was inflated, when the memory has been taken. So nothing is inflated: the
  // gate refuses a compressed request by name, and one that says nothing of it cannot be parsed.
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMilliseconds);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMilliseconds);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // No limit on pings. With a limit, gRPC makes an error of a kilobyte for each ping beyond it. The
  // flood guard handles floods of pings.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMilliseconds);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMilliseconds);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kMaxReadBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsPerConnection);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      const Clock& clock) {
  std::unique_ptr<Server> server(new Server());
  server->time_ = std::make_unique<BelievedTime>(clock);
  ASSIGN_OR_RETURN(server->namespaces_, Namespaces::Open(options.namespaces_file));
  ASSIGN_OR_RETURN(server->acceptor_, Acceptor::Listen(options.listen, server->users_));
  const auto commits = &server->metrics_.store_commit_duration_seconds.Add({}, CommitBuckets());
  ASSIGN_OR_RETURN(server->store_,
                   SqliteStore::Open(options.state_directory, {}, options.recovery,
                                     [commits](absl::Duration took) {
                                       commits->Observe(absl::ToDoubleSeconds(took));
                                     }));
  ASSIGN_OR_RETURN(server->book_, JobBook::Create(*server->time_, *server->store_, server->metrics_,
                                                  options.limits));
  CoordinatorOptions coordinator = options.coordinator;
  coordinator.device_quota = [namespaces = server->namespaces_.get()](const std::string& name) {
    return namespaces->DeviceQuota(name);
  };
  coordinator.roots_of = [namespaces = server->namespaces_.get()](
                             const std::string& name) -> absl::StatusOr<std::vector<std::string>> {
    ASSIGN_OR_RETURN(NamespaceLimits limits, namespaces->Find(name));
    return std::move(limits.roots);
  };
  server->coordinator_ = std::make_unique<Coordinator>(
      *server->time_, *server->book_, server->metrics_,
      [ticker = &server->ticker_] { ticker->Wake(); }, std::move(coordinator));
  server->executor_ = std::make_unique<Executor>();
  server->audit_ = std::make_unique<Audit>(clock, *server->store_);
  ASSIGN_OR_RETURN(
      server->access_,
      AccessControl::Create({.state_directory = options.state_directory,
                             .config_directory = options.config_directory,
                             .certificate = options.certificate,
                             .issuers_file = options.issuers_file},
                            server->address(), *server->time_, server->metrics_, *server->audit_));
  RETURN_IF_ERROR(server->Serve(clock));
  server->metrics_.build_info
      .Add({{"version", Version()},
            {"revision", Revision()},
            {"cuda", CudaVersion()},
            {"nccl", "none"}})
      .Set(1);
  server->ticker_.Start(options.tick_every,
                        [coordinator = server->coordinator_.get()] { coordinator->Tick(); });
  server->namespaces_ticker_.Start(kLookAtNamespacesEvery, [self = server.get()] {
    if (self->namespaces_->Refresh()) self->coordinator_->ScheduleAgain();
  });
  server->streams_ticker_.Start(kLookAtCallersEvery,
                                [self = server.get()] { self->SweepCallers(); });
  server->KeepBackups(options, clock);
  return server;
}

void Server::SweepCallers() {
  streams_->Sweep();
  audit_->WriteCounts();
  coordinator_->ExpelUnless([this](const std::string& id) { return access_->grants().Knows(id); });
}

void Server::KeepBackups(const ServerOptions& options, const Clock& clock) {
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

absl::Status Server::Serve(const Clock& clock) {
  access_service_ = std::make_unique<AccessService>(AccessService::Parts{
      clock, access_->gate(), access_->grants(), access_->authority(), *audit_});
  site_ = std::make_unique<Site>(Site::Parts{*book_, *coordinator_, access_->gate(), clock});
  streams_ = std::make_unique<OpenStreams>(access_->gate(), MostStreams());
  job_service_ = std::make_unique<JobService>(JobService::Parts{
      *book_, *coordinator_, *executor_, access_->gate(), *namespaces_, *audit_, *streams_});
  cluster_service_ = std::make_unique<ClusterService>(*coordinator_, access_->gate());
  worker_service_ = std::make_unique<WorkerService>(
      WorkerService::Parts{*coordinator_, access_->gate(), *audit_, *streams_, users_});
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  Configure(builder);
  builder.SetResourceQuota(acceptor_->quota());
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(std::make_unique<CallerWatchFactory>(
      CallerWatchFactory::Parts{access_->gate(), *streams_, users_}));
  interceptors.push_back(std::make_unique<CallMeterFactory>(metrics_));
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  auto connections = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      access_->credentials());
  builder.RegisterService(access_service_.get());
  builder.RegisterService(job_service_.get());
  builder.RegisterService(cluster_service_.get());
  builder.RegisterService(worker_service_.get());
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return absl::InternalError("gRPC refuses to start its server");
  acceptor_->Start(std::move(connections), MostConnections());
  return absl::OkStatus();
}

Server::~Server() {
  backups_.reset();
  acceptor_.reset();
  // Shutdown waits for every call, and a call may wait for a write that the disk does not take. So
  // the store is closed after the time of normal writes, which answers such calls.
  std::thread calls([this] {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
  });
  std::this_thread::sleep_for(kShutdownGrace);
  ticker_.Stop();
  namespaces_ticker_.Stop();
  streams_ticker_.Stop();
  if (audit_ != nullptr) audit_->WriteCounts(true);
  if (store_ != nullptr) store_->Close();
  calls.join();
  server_.reset();
  executor_.reset();
}

}  // namespace trainyard::controller
