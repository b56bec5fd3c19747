#include "cli/client.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/errors.h"
#include "common/clock.h"
#include "common/net/address.h"
#include "common/status_macros.h"
#include "common/violations.h"
#include "security/channel.h"
#include "security/controller_proof.h"
#include "trainyard/v1/error_details.pb.h"

namespace trainyard::cli {
namespace {

// Makes a new channel with its own connection. A channel that failed to connect keeps failing calls
// for seconds after the server is back, because its re-resolution waits. So every attempt after a
// failure has a new channel.
std::shared_ptr<grpc::Channel> Connect(const std::string& address, const Credential& credential) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetMaxReceiveMessageSize(64 << 20);
  return Dial(address, credential, arguments);
}

// Returns when to try again if the answer asks for another attempt, because the controller is
// overloaded. An answer that came before the call reached its service has no details.
std::optional<absl::Duration> RetryAfter(const grpc::Status& status) {
  if (status.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED) return std::nullopt;
  if (status.error_details().empty()) return absl::ZeroDuration();
  google::rpc::Status rich;
  (void)rich.ParseFromString(status.error_details());
  for (const google::protobuf::Any& detail : rich.details()) {
    google::rpc::RetryInfo retry;
    if (detail.UnpackTo(&retry)) return absl::Seconds(retry.retry_delay().seconds());
  }
  return std::nullopt;
}

std::string Unreachable(const std::string& address, const std::string& cause) {
  return absl::StrCat("no controller answers at ", address, " (", cause,
                      "); start one with 'trainyard up', say where it is with --controller or "
                      "TRAINYARD_CONTROLLER, or, for one that serves other machines, run "
                      "'trainyard login'");
}

}  // namespace

Client::Client(std::string address, CredentialPlaces places, Patience patience)
    : address_(std::move(address)), places_(std::move(places)), patience_(patience) {}

absl::Status Client::Reconnect() {
  ASSIGN_OR_RETURN(const Address address, ParseAddress(address_));
  ASSIGN_OR_RETURN(shown_, FindCredential(places_, address));
  const std::shared_ptr<grpc::Channel> channel = Connect(address.ToString(), shown_);
  jobs_ = v1::JobService::NewStub(channel);
  cluster_ = v1::ClusterService::NewStub(channel);
  access_ = v1::AccessService::NewStub(channel);
  return absl::OkStatus();
}

absl::Status Client::Repeat(const Attempt& attempt) {
  bool served = false;
  repeated_ = false;
  absl::BitGen random;
  absl::Duration pause = absl::Milliseconds(50);
  absl::Duration last_answer = RealClock().Monotonic();
  if (jobs_ == nullptr) RETURN_IF_ERROR(Reconnect());
  for (;;) {
    grpc::ClientContext context;
    Progress progress = Progress::kNone;
    const absl::Duration begun = RealClock().Monotonic();
    const grpc::Status status = attempt(context, progress);
    const bool late = status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    served = served || progress != Progress::kNone;
    // A stream that ends at once, again and again, is not an answer.
    const bool lasted =
        progress == Progress::kServed && RealClock().Monotonic() - begun > absl::Seconds(1);
    if (progress == Progress::kSome || lasted || (late && served)) {
      last_answer = RealClock().Monotonic();
      pause = absl::Milliseconds(50);
    }
    const bool away = status.error_code() == grpc::StatusCode::UNAVAILABLE;
    if (status.error_code() == grpc::StatusCode::UNAUTHENTICATED) {
      // A controller that has just started may have written a new one since it was read.
      const Credential shown = shown_;
      RETURN_IF_ERROR(Reconnect());
      if (!(shown_ == shown)) continue;
      return absl::UnauthenticatedError(absl::StrCat(
          status.error_message(), "; run 'trainyard login ", address_,
          "', or name a file with a token by --token-file or TRAINYARD_TOKEN_FILE. The token of a "
          "controller on this machine lies in its state directory, STATE/token"));
    }
    if (const std::optional<absl::Duration> after = RetryAfter(status)) {
      const absl::Duration wait = std::max(*after, pause) * absl::Uniform(random, 1.0, 1.5);
      if (RealClock().Monotonic() + wait - last_answer > patience_.unreachable) {
        return FromGrpc(status);
      }
      absl::SleepFor(wait);
      pause = std::min(2 * pause, absl::Seconds(1));
      continue;
    }
    if (!away && !(late && served)) {
      return late ? UnreachableError(Unreachable(address_, "no answer in time")) : FromGrpc(status);
    }
    if (RealClock().Monotonic() - last_answer > (served ? patience_.away : patience_.unreachable)) {
      ASSIGN_OR_RETURN(const Address address, ParseAddress(address_));
      return UnreachableError(Unreachable(address_, ExplainProof(status.error_message(), address)));
    }
    repeated_ = true;
    absl::SleepFor(pause * absl::Uniform(random, 0.5, 1.0));
    pause = std::min(2 * pause, absl::Seconds(1));
    RETURN_IF_ERROR(Reconnect());
  }
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  // gRPC itself may end a call without a message, and an error without one would print nothing.
  const std::string message =
      status.error_message().empty()
          ? absl::StrCat("the controller answered ", absl::StatusCodeToString(code))
          : status.error_message();
  if (code == absl::StatusCode::kUnimplemented) {
    return absl::UnimplementedError(absl::StrCat(
        message,
        "; the controller is of an older release than this command line ('trainyard "
        "--version'): upgrade the controller, or use the command line of its release"));
  }
  google::rpc::Status rich;
  if (!rich.ParseFromString(status.error_details())) return absl::Status(code, message);
  Violations violations;
  for (const google::protobuf::Any& detail : rich.details()) {
    google::rpc::BadRequest bad_request;
    if (!detail.UnpackTo(&bad_request)) continue;
    for (const auto& violation : bad_request.field_violations()) {
      violations.Add({.field = violation.field(), .note = violation.description()});
    }
  }
  return violations.empty() ? absl::Status(code, message) : violations.ToStatus();
}

}  // namespace trainyard::cli
