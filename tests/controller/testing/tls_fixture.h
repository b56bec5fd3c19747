// A real controller that serves by TLS, and credentials of all kinds for it.

#pragma once

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/check.h"
#include "controller/access/directories.h"
#include "controller/access/owner_tools.h"
#include "controller/access/principal.h"
#include "controller/service/server.h"
#include "security/authority.h"
#include "security/channel.h"
#include "tests/controller/testing/temp_directory.h"
#include "trainyard/v1/access.grpc.pb.h"
#include "trainyard/v1/job.grpc.pb.h"
#include "trainyard/v1/worker.grpc.pb.h"

namespace trainyard::controller {

class TlsFixture : public ::testing::Test {
 protected:
  TlsFixture() {
    EXPECT_TRUE(InitAuthority(State(), {"127.0.0.1"}, absl::Now()).ok());
    StartServer();
  }

  void StartServer() {
    ServerOptions options;
    options.state_directory = State();
    options.listen = {"0.0.0.0", port_};
    options.tick_every = absl::Milliseconds(20);
    edit_(options);
    auto server = Server::Start(options, *clock_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    port_ = server_->address().port;
  }

  std::string State() const { return directory_.path() + "/state"; }
  Authority Own() const { return *Authority::Open(AuthorityDirectory(State()), absl::Now()); }
  std::string Address() const { return absl::StrCat("127.0.0.1:", port_); }

  // Waits for what must come; what does not ends the test.
  static void Until(const std::function<bool()>& condition) {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (!condition()) {
      CHECK(absl::Now() < deadline) << "waited in vain";
      absl::SleepFor(absl::Milliseconds(9));
    }
  }

  // A token as the owner of the state directory makes it, once the controller knows it.
  std::string Token(v1::Role role, uint32_t uses = 1) {
    const std::string token = NewToken(role, uses);
    Until([&] { return List(With(token)).error_code() != grpc::UNAUTHENTICATED; });
    return token;
  }
  std::string NewToken(v1::Role role, uint32_t uses) {
    v1::CreateTokenRequest request;
    request.set_name("somebody");
    request.set_role(role);
    if (role == v1::ROLE_JOINER) request.mutable_join()->set_uses(uses);
    return MakeToken(State(), request, absl::Now())->token;
  }
  // What somebody with this token shows, and believes.
  Credential With(const std::string& token) const {
    return {.token = token, .authorities = Own().certificate(), .identity = {}};
  }
  static CertificateFacts WorkerFacts(const std::string& worker_id, const std::string& grant) {
    return {.common_name = "host",
            .uris = {ToUri({worker_id, grant})},
            .not_before = absl::Now() - absl::Hours(1),
            .not_after = absl::Now() + absl::Hours(1),
            .client = true};
  }
  // A certificate that `authority` signs.
  Credential Signed(const Authority& authority, const CertificateFacts& facts) const {
    Credential credential = With("");
    credential.identity.key_pem = NewKey().value();
    const std::string request = NewRequest(credential.identity.key_pem, "x").value();
    credential.identity.certificate_pem = authority.Sign(request, facts).value();
    return credential;
  }

  std::shared_ptr<grpc::Channel> Open(const Credential& credential) const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return Dial(Address(), credential, arguments);
  }
  static void SetDeadline(grpc::ClientContext& context, absl::Duration wait = absl::Seconds(20)) {
    context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(wait));
  }
  // How a call without a message's bytes ends, on a connection of its own. A stream that is let in
  // ends by its deadline.
  grpc::Status Call(const std::string& path, const Credential& credential) const {
    grpc::GenericStub stub(Open(credential));
    grpc::ClientContext context;
    SetDeadline(context, absl::Seconds(2));
    const grpc::Slice bytes("");
    const grpc::ByteBuffer request(&bytes, 1);
    grpc::ByteBuffer response;
    std::promise<grpc::Status> ended;
    stub.UnaryCall(&context, path, {}, &request, &response,
                   [&](const grpc::Status& status) { ended.set_value(status); });
    return ended.get_future().get();
  }
  grpc::Status List(const Credential& credential) const {
    return Call("/trainyard.v1.JobService/ListJobs", credential);
  }

  static v1::JobSpec Spec() {
    v1::JobSpec spec;
    spec.set_name("tiny");
    spec.mutable_model()->set_preset("llama3-8b");
    spec.mutable_batch()->set_global(4);
    spec.mutable_batch()->set_micro(1);
    spec.mutable_batch()->set_sequence(32);
    spec.mutable_data()->mutable_synthetic();
    spec.mutable_optimizer()->mutable_adamw()->set_learning_rate(1e-3);
    spec.set_steps(10);
    return spec;
  }

  // Joins as `worker_id` with a new key, or with that of `credential` where it has one.
  grpc::Status Join(const std::string& token, const std::string& worker_id, Credential& credential,
                    const std::string& hostname = "host") const {
    if (credential.identity.key_pem.empty()) credential.identity.key_pem = NewKey().value();
    v1::JoinRequest request;
    request.set_worker_id(worker_id);
    request.set_hostname(hostname);
    request.set_certificate_request(NewRequest(credential.identity.key_pem, "x").value());
    grpc::ClientContext context;
    SetDeadline(context);
    v1::JoinResponse response;
    const grpc::Status status =
        v1::AccessService::NewStub(Open(With(token)))->Join(&context, request, &response);
    credential.authorities = Own().certificate();
    credential.identity.certificate_pem = response.certificates();
    return status;
  }

  const TempDirectory directory_;
  int port_ = 0;
  const Clock* clock_ = &RealClock();
  std::function<void(ServerOptions&)> edit_ = [](ServerOptions&) {};
  std::unique_ptr<Server> server_;
};

}  // namespace trainyard::controller
