// JobService over the book and the coordinator. Handlers convert and delegate.

#pragma once

#include <grpcpp/grpcpp.h>

#include "controller/jobs/job_book.h"
#include "controller/service/executor.h"
#include "controller/workers/coordinator.h"
#include "trainyard/v1/job.grpc.pb.h"

namespace trainyard::controller {

class JobService final : public v1::JobService::CallbackService {
 public:
  // All outlive the server.
  JobService(JobBook& book, Coordinator& coordinator, Executor& executor)
      : book_(book), coordinator_(coordinator), executor_(executor) {}

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
  JobBook& book_;
  Coordinator& coordinator_;
  Executor& executor_;
};

}  // namespace trainyard::controller
