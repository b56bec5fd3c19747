// The command line's client of the controller. Every call has a deadline, and is repeated with
// jitter while no controller answers. (All calls made here are idempotent. A submit and a new token
// are so by their request_id. Whoever removes something looks at repeated().) Errors: if no
// controller can be reached, an unreachable error (exit code 4) that says what to do; otherwise the
// server's text with its field violations (see Violations). Not thread-safe.

#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/random/random.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/stream_open.h"
#include "security/credentials.h"
#include "trainyard/v1/access.grpc.pb.h"
#include "trainyard/v1/cluster.grpc.pb.h"
#include "trainyard/v1/job.grpc.pb.h"

namespace trainyard::cli {

class Client {
 public:
  struct Patience {
    absl::Duration call = absl::Seconds(20);        // For one attempt.
    absl::Duration unreachable = absl::Seconds(3);  // How long to retry without any answer.
    absl::Duration away = absl::Seconds(60);  // The same, for a stream that has been served before.
  };

  // Reads the credential again for every attempt, because a restarted controller may have made a
  // new one.
  explicit Client(std::string address, CredentialPlaces places = {})
      : Client(std::move(address), std::move(places), Patience()) {}
  Client(std::string address, CredentialPlaces places, Patience patience);

  template <typename Request, typename Response>
  using JobMethod = grpc::Status (v1::JobService::Stub::*)(grpc::ClientContext*, const Request&,
                                                           Response*);
  template <typename Request, typename Response>
  using ClusterMethod = grpc::Status (v1::ClusterService::Stub::*)(grpc::ClientContext*,
                                                                   const Request&, Response*);

  template <typename Request, typename Response>
  using AccessMethod = grpc::Status (v1::AccessService::Stub::*)(grpc::ClientContext*,
                                                                 const Request&, Response*);

  // Whether the last call was tried more than once, so that an earlier attempt may have done what
  // the call asks for.
  bool repeated() const { return repeated_; }

  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(JobMethod<Request, Response> method, const Request& request) {
    return CallStub<Request, Response>(jobs_, method, request);
  }
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(ClusterMethod<Request, Response> method, const Request& request) {
    return CallStub<Request, Response>(cluster_, method, request);
  }
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(AccessMethod<Request, Response> method, const Request& request) {
    return CallStub<Request, Response>(access_, method, request);
  }

  // Reads a stream to its end. If the stream breaks off or its deadline (an hour) comes, `open` is
  // called again, and must ask for what has not been seen yet. `message` gets every message once. A
  // controller says that it serves the stream before there is a message (kStreamOpen).
  template <typename Response>
  absl::Status Read(const std::function<std::unique_ptr<grpc::ClientReader<Response>>(
                        v1::JobService::Stub&, grpc::ClientContext*)>& open,
                    const std::function<void(const Response&)>& message) {
    return Repeat([&](grpc::ClientContext& context, Progress& progress) {
      context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Hours(1)));
      auto reader = open(*jobs_, &context);
      reader->WaitForInitialMetadata();
      if (context.GetServerInitialMetadata().contains(kStreamOpen)) progress = Progress::kServed;
      for (Response response; reader->Read(&response);) {
        message(response);
        progress = Progress::kSome;
      }
      return reader->Finish();
    });
  }

 private:
  // What an attempt has brought: nothing; a stream that was served, without a message; messages.
  enum class Progress { kNone, kServed, kSome };
  using Attempt = std::function<grpc::Status(grpc::ClientContext& context, Progress& progress)>;

  template <typename Request, typename Response, typename Stub, typename Method>
  absl::StatusOr<Response> CallStub(const std::unique_ptr<Stub>& stub, Method method,
                                    const Request& request) {
    Response response;
    const absl::Status status = Repeat([&](grpc::ClientContext& context, Progress&) {
      context.set_deadline(absl::ToChronoTime(absl::Now() + patience_.call));
      return ((*stub).*method)(&context, request, &response);
    });
    if (!status.ok()) return status;
    return response;
  }

  // Repeats the attempt until its answer is not UNAVAILABLE and asks for no further attempt, or
  // patience ends. Once a stream was served, a passed deadline leads to another attempt, too.
  absl::Status Repeat(const Attempt& attempt);
  absl::Status Reconnect();

  const std::string address_;
  const CredentialPlaces places_;
  const Patience patience_;
  Credential shown_;  // The credential of the stubs' calls.
  bool repeated_ = false;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<v1::ClusterService::Stub> cluster_;
  std::unique_ptr<v1::AccessService::Stub> access_;
};

// Converts the status of an RPC, with the violations of its google.rpc.BadRequest if there is one.
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace trainyard::cli
