// trainyard health: answers a probe. A file tells about a worker on this machine. A controller is
// asked through gRPC's own health service.

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "cli/client.h"
#include "cli/errors.h"
#include "cli/verbs/verbs.h"
#include "common/clock.h"
#include "common/last_word.h"
#include "common/status_macros.h"
#include "security/channel.h"
#include "security/controller_proof.h"

namespace trainyard::cli {
namespace {

constexpr absl::Duration kHealthPatience = absl::Seconds(5);
// grpc.health.v1.HealthCheckResponse with status SERVING: field 1, a varint, of value 1. The file
// that declares the message does not come with gRPC's library.
constexpr absl::string_view kServing = "\x08\x01";

// Asks /grpc.health.v1.Health/Check with an empty HealthCheckRequest, which means the whole server.
grpc::Status AskHealth(const std::shared_ptr<grpc::Channel>& channel, std::string& answer) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoSeconds(kHealthPatience));
  grpc::CompletionQueue queue;
  const grpc::Slice empty;
  const grpc::ByteBuffer request(&empty, 1);  // A buffer without any would be no message.
  const auto call =
      stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  std::vector<grpc::Slice> slices;
  if (status.ok() && response.Dump(&slices).ok()) {
    for (const grpc::Slice& slice : slices) answer.append(slice.begin(), slice.end());
  }
  return status;
}

absl::Status CheckController(const Context& context) {
  const auto controller = ParseAddress(context.ControllerAddress());
  if (!controller.ok()) return UsageError(controller.status().message());
  ASSIGN_OR_RETURN(const Credential credential, FindCredential(context.Places(), *controller));
  std::string answer;
  const grpc::Status status =
      AskHealth(Dial(controller->ToString(), credential, grpc::ChannelArguments()), answer);
  // A probe has no token. A refusal over TLS proves that the controller answers: it comes from the
  // gate that all calls pass.
  if (status.error_code() == grpc::StatusCode::UNAUTHENTICATED && credential.token.empty()) {
    context.output.Line("answers; without a token it does not say more");
    return absl::OkStatus();
  }
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE ||
      status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return UnreachableError(absl::StrCat("no controller answers at ", controller->ToString(), ": ",
                                         ExplainProof(status.error_message(), *controller)));
  }
  RETURN_IF_ERROR(FromGrpc(status));
  if (answer != kServing) return absl::FailedPreconditionError("the controller is not serving");
  context.output.Line("serving");
  return absl::OkStatus();
}

absl::Status RunHealth(const Context& context) {
  const std::string worker = context.arguments.Text("--worker");
  if (worker.empty()) return CheckController(context);
  RETURN_IF_ERROR(CheckLastWord(worker, RealClock()));
  context.output.Line("registered");
  return absl::OkStatus();
}

}  // namespace

Verb HealthVerb() {
  return {
      .name = "health",
      .summary = "says whether a controller serves, or a worker is registered; for probes",
      .positionals = {},
      .options = {TextOption(
          "--worker", "DIR",
          "checks the worker with this state directory on this machine instead of a controller")},
      .offers = kController | kQuiet,
      .examples = {"trainyard health", "trainyard health --worker /var/lib/trainyard/worker"},
      .run = RunHealth};
}

}  // namespace trainyard::cli
