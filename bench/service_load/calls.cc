// Calls a controller at a steady rate, whether or not it answers in time, and prints how long the
// answers took, from the moment at which each call was due. bench/crowd.py starts it.

#include <grpcpp/grpcpp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <iostream>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/files.h"
#include "common/mutex.h"
#include "security/channel.h"
#include "trainyard/v1/job.grpc.pb.h"

namespace trainyard {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);

std::chrono::system_clock::time_point Deadline() {
  return absl::ToChronoTime(RealClock().Now() + kPatience);
}

struct Flags {
  std::string controller, authority, token;
  double rate = 0, seconds = 0;
  int connections = 1;
  size_t bytes = 0;  // Of each request.
  bool get = false;
};

// What became of the calls. Thread-safe.
class Answers {
 public:
  void Add(absl::Duration took, const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mutex_) {
    const MutexLock lock(mutex_);
    took_.push_back(took);
    if (status.ok()) ++served_;
  }
  size_t size() const ABSL_LOCKS_EXCLUDED(mutex_) {
    const MutexLock lock(mutex_);
    return took_.size();
  }
  std::string Text() ABSL_LOCKS_EXCLUDED(mutex_) {
    const MutexLock lock(mutex_);
    CHECK(!took_.empty()) << "no call was due";
    std::sort(took_.begin(), took_.end());
    return absl::StrCat("{\"calls\": ", took_.size(), ", \"served\": ", served_,
                        ", \"p50_ms\": ", At(0.5), ", \"p99_ms\": ", At(0.99),
                        ", \"worst_ms\": ", At(1), "}");
  }

 private:
  // In milliseconds, of sorted ones.
  double At(double part) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return absl::ToDoubleMilliseconds(took_[size_t(part * double(took_.size() - 1))]);
  }

  mutable Mutex mutex_;
  std::vector<absl::Duration> took_ ABSL_GUARDED_BY(mutex_);
  size_t served_ ABSL_GUARDED_BY(mutex_) = 0;
};

std::vector<std::unique_ptr<v1::JobService::Stub>> Connect(const Flags& flags) {
  const auto read = [](const std::string& path) {
    const absl::StatusOr<std::string> text = ReadFile(path, 1 << 20);
    CHECK(text.ok()) << text.status();
    return *text;
  };
  const absl::StatusOr<Invitation> invitation = ParseInvitation(read(flags.token));
  CHECK(invitation.ok()) << invitation.status();
  const Credential credential = {.token = invitation->token, .authorities = read(flags.authority)};
  std::vector<std::unique_ptr<v1::JobService::Stub>> stubs;
  for (int i = 0; i < flags.connections; ++i) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto channel = Dial(flags.controller, credential, arguments);
    CHECK(channel->WaitForConnected(Deadline()));
    stubs.push_back(v1::JobService::NewStub(channel));
  }
  return stubs;
}

template <typename Request, typename Response>
using Method = void (v1::JobService::StubInterface::async_interface::*)(
    grpc::ClientContext*, const Request*, Response*, std::function<void(grpc::Status)>);

template <typename Request, typename Response>
void Call(v1::JobService::Stub& stub, Method<Request, Response> method, const Request& request,
          absl::Duration due, Answers& answers) {
  struct InFlight {
    grpc::ClientContext context;
    Response response;
  };
  auto* call = new InFlight;
  call->context.set_deadline(Deadline());
  (stub.async()->*method)(&call->context, &request, &call->response,
                          [call, due, &answers](const grpc::Status& status) {
                            answers.Add(RealClock().Monotonic() - due, status);
                            delete call;
                          });
}

std::string JobThatHasEnded(v1::JobService::Stub& stub) {
  v1::ListJobsRequest request;
  request.set_page_size(1);
  request.add_states(v1::JOB_STATE_CANCELLED);
  v1::ListJobsResponse response;
  grpc::ClientContext context;
  context.set_deadline(Deadline());
  CHECK(stub.ListJobs(&context, request, &response).ok() && response.jobs_size() == 1);
  return response.jobs(0).id();
}

int Main(int argc, char** argv) {
  CLI::App app("Calls a controller at a steady rate");
  Flags flags;
  app.add_option("--controller", flags.controller)->required();
  app.add_option("--authority", flags.authority, "Its certificate, PEM")->required();
  app.add_option("--token", flags.token, "File with a token")->required();
  app.add_option("--rate", flags.rate, "Calls a second")->required();
  app.add_option("--seconds", flags.seconds)->required();
  app.add_option("--connections", flags.connections);
  app.add_option("--bytes", flags.bytes, "Of each request, beside what it needs");
  app.add_flag("--get", flags.get, "Get a job that has ended, which is not in memory");
  CLI11_PARSE(app, argc, argv);
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);  // As the controller.

  const auto stubs = Connect(flags);
  v1::ListJobsRequest request;
  request.set_page_size(10);
  request.set_page_token(std::string(flags.bytes, 'x'));
  v1::GetJobRequest get;
  if (flags.get) get.set_job_id(JobThatHasEnded(*stubs[0]));
  Answers answers;
  size_t made = 0;
  const absl::Duration begin = RealClock().Monotonic();
  const absl::Duration every = absl::Seconds(1) / flags.rate;
  for (absl::Duration due = begin; due < begin + absl::Seconds(flags.seconds); due += every) {
    absl::SleepFor(due - RealClock().Monotonic());
    v1::JobService::Stub& stub = *stubs[made++ % stubs.size()];
    using Async = v1::JobService::StubInterface::async_interface;
    if (flags.get) {
      Call<v1::GetJobRequest, v1::GetJobResponse>(stub, &Async::GetJob, get, due, answers);
    } else {
      Call<v1::ListJobsRequest, v1::ListJobsResponse>(stub, &Async::ListJobs, request, due,
                                                      answers);
    }
  }
  while (answers.size() < made) absl::SleepFor(absl::Milliseconds(1));
  std::cout << answers.Text() << "\n";
  return 0;
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) { return trainyard::Main(argc, argv); }
