#include "controller/service/call_meter.h"

#include <array>
#include <chrono>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace trainyard::controller {
namespace {

constexpr std::array<const char*, 17> kCodes = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

using grpc::experimental::InterceptionHookPoints;

class CallMeter final : public grpc::experimental::Interceptor {
 public:
  CallMeter(ControllerMetrics& metrics, const char* method)
      : metrics_(metrics), start_(std::chrono::steady_clock::now()) {
    // The path is like "/trainyard.v1.JobService/SubmitJob". Only existing methods get here, so the
    // number of labels is limited.
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(absl::string_view(method).substr(1), absl::MaxSplits('/', 1));
    labels_ = {{"grpc_service", parts.first}, {"grpc_method", parts.second}};
    ours_ = absl::StartsWith(parts.first, "trainyard.");
  }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      // All our methods have handlers. gRPC gives this code to a request that it cannot parse.
      if (methods->GetSendStatus().error_code() == grpc::UNIMPLEMENTED && ours_) {
        methods->ModifySendStatus(grpc::Status(
            grpc::INVALID_ARGUMENT, "the request's bytes are not a message of this method"));
      }
      Record(methods->GetSendStatus().error_code());
    }
    methods->Proceed();
  }

 private:
  void Record(grpc::StatusCode code) {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
    metrics_.grpc_server_handling_seconds
        .Add(labels_, prometheus::Histogram::BucketBoundaries{0.001, 0.0025, 0.005, 0.01, 0.025,
                                                              0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10})
        .Observe(seconds.count());
    prometheus::Labels labels = labels_;
    labels.emplace("grpc_code", size_t(code) < kCodes.size() ? kCodes[size_t(code)] : "UNKNOWN");
    metrics_.grpc_server_handled_total.Add(labels).Increment();
  }

  ControllerMetrics& metrics_;
  const std::chrono::steady_clock::time_point start_;
  prometheus::Labels labels_;
  bool ours_ = false;
};

}  // namespace

grpc::experimental::Interceptor* CallMeterFactory::CreateServerInterceptor(
    grpc::experimental::ServerRpcInfo* info) {
  return new CallMeter(metrics_, info->method());  // gRPC owns it.
}

}  // namespace trainyard::controller
