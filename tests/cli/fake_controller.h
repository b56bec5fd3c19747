// A controller in this process that answers as a test says. Loopback, a free port.
//
// Its destructor waits for the answers that are still being given, and a client that gave up a call
// does not wait for them. So a test declares what its answers read before the controller.

#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/stream_open.h"
#include "trainyard/v1/job.grpc.pb.h"

namespace trainyard::cli {

class FakeController final : public v1::JobService::Service {
 public:
  // `port` of 0 is a free one; another brings back the address of one that was stopped.
  explicit FakeController(int port = 0) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(absl::StrCat("127.0.0.1:", port), grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeController() override { server_->Shutdown(std::chrono::system_clock::now()); }

  int port() const { return port_; }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  std::function<grpc::Status(const v1::SubmitJobRequest&, v1::SubmitJobResponse&)> submit;
  std::function<grpc::Status(const v1::WatchJobRequest&, grpc::ServerWriter<v1::WatchJobResponse>&)>
      watch;
  std::function<grpc::Status(const v1::StreamStepsRequest&,
                             grpc::ServerWriter<v1::StreamStepsResponse>&)>
      steps;
  std::function<grpc::Status(const v1::StreamLogsRequest&,
                             grpc::ServerWriter<v1::StreamLogsResponse>&)>
      logs;
  std::function<grpc::Status(const v1::ListJobsRequest&, v1::ListJobsResponse&)> list;
  std::atomic<bool> opens = false;  // Says at once that it serves a stream, as the real one does.
  v1::Job job;                      // What GetJob answers for every id that `others` does not have.
  std::map<std::string, v1::Job> others;

 private:
  grpc::Status SubmitJob(grpc::ServerContext*, const v1::SubmitJobRequest* request,
                         v1::SubmitJobResponse* response) override {
    return submit(*request, *response);
  }
  grpc::Status WatchJob(grpc::ServerContext*, const v1::WatchJobRequest* request,
                        grpc::ServerWriter<v1::WatchJobResponse>* writer) override {
    return watch(*request, *writer);
  }
  grpc::Status StreamSteps(grpc::ServerContext*, const v1::StreamStepsRequest* request,
                           grpc::ServerWriter<v1::StreamStepsResponse>* writer) override {
    return steps(*request, *writer);
  }
  grpc::Status StreamLogs(grpc::ServerContext* context, const v1::StreamLogsRequest* request,
                          grpc::ServerWriter<v1::StreamLogsResponse>* writer) override {
    if (opens) {
      context->AddInitialMetadata(kStreamOpen, "1");
      writer->SendInitialMetadata();
    }
    return logs(*request, *writer);
  }
  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                      v1::GetJobResponse* response) override {
    const auto other = others.find(request->job_id());
    *response->mutable_job() = other == others.end() ? job : other->second;
    return grpc::Status::OK;
  }
  grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override {
    return list(*request, *response);
  }

  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace trainyard::cli
