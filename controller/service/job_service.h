// Serves JobService with the book and the coordinator. The handlers convert messages and delegate.

#pragma once

#include <grpcpp/grpcpp.h>

#include "controller/access/audit.h"
#include "controller/access/gate.h"
#include "controller/access/namespaces.h"
#include "controller/book/job_book.h"
#include "controller/service/executor.h"
#include "controller/service/follow_stream.h"
#include "controller/service/open_streams.h"
#include "controller/workers/coordinator.h"
#include "trainyard/v1/job.grpc.pb.h"

namespace trainyard::controller {

class JobService final : public v1::JobService::CallbackService {
 public:
  // All outlive the server.
  struct Parts {
    JobBook& book;
    Coordinator& coordinator;
    Executor& executor;
    const Gate& gate;
    const Namespaces& namespaces;
    Audit& audit;
    OpenStreams& streams;
  };
  explicit JobService(const Parts& parts)
      : book_(parts.book),
        coordinator_(parts.coordinator),
        executor_(parts.executor),
        gate_(parts.gate),
        namespaces_(parts.namespaces),
        audit_(parts.audit),
        streams_(parts.streams) {}

  grpc::ServerUnaryReactor* SubmitJob(grpc::CallbackServerContext* context,
                                      const v1::SubmitJobRequest* request,
                                      v1::SubmitJobResponse* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request,
                                   v1::GetJobResponse* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context,
                                      const v1::CancelJobRequest* request,
                                      v1::CancelJobResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchJobResponse>* WatchJob(
      grpc::CallbackServerContext* context, const v1::WatchJobRequest* request) override;
  grpc::ServerWriteReactor<v1::StreamStepsResponse>* StreamSteps(
      grpc::CallbackServerContext* context, const v1::StreamStepsRequest* request) override;
  grpc::ServerWriteReactor<v1::StreamLogsResponse>* StreamLogs(
      grpc::CallbackServerContext* context, const v1::StreamLogsRequest* request) override;
  grpc::ServerUnaryReactor* ListEvents(grpc::CallbackServerContext* context,
                                       const v1::ListEventsRequest* request,
                                       v1::ListEventsResponse* response) override;

 private:
  // Returns the only namespace whose jobs the caller sees; empty: all namespaces. Errors: those of
  // Gate::CallerOf.
  absl::StatusOr<std::string> Sees(const grpc::ServerContextBase& context) const;
  // Streams a job's data as long as the caller is let in. The source gets the namespace that the
  // caller sees.
  template <typename Response>
  using Source = std::function<Filled(const std::string& sees, Response&)>;
  template <typename Response>
  grpc::ServerWriteReactor<Response>* Follow(grpc::CallbackServerContext* context,
                                             const std::string& job_id, Source<Response> source);
  // Returns the spec in `request`, for the namespace that the request means. PERMISSION_DENIED: the
  // caller may not use this namespace.
  absl::StatusOr<std::shared_ptr<const Spec>> Admit(const Principal& caller,
                                                    const v1::SubmitJobRequest& request) const;
  // Ends a call that wanted to change something and was refused, once the refusal is in the audit
  // log.
  void Refuse(grpc::ServerUnaryReactor* reactor, AuditEntry entry, const absl::Status& status);

  JobBook& book_;
  Coordinator& coordinator_;
  Executor& executor_;
  const Gate& gate_;
  const Namespaces& namespaces_;
  Audit& audit_;
  OpenStreams& streams_;
};

}  // namespace trainyard::controller
