// Proves that people and machines come in by an organisation's tokens, over TLS, as the rules say,
// and are out when a rule or the token ends (docs/reliability.md, S1).

#include <prometheus/text_serializer.h>

#include "absl/strings/str_split.h"
#include "common/files.h"
#include "controller/access/grants.h"
#include "controller/access/rates.h"
#include "tests/controller/testing/tls_fixture.h"
#include "tests/security/jwt_signer.h"

namespace trainyard::controller {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using trainyard::testing::JwtSigner;

constexpr char kIssuer[] = "https://login.example.org";
constexpr char kResearch[] = "- {claims: {groups: research}, role: submitter, namespace: research}";
constexpr char kOperators[] = "- {claims: {groups: sre}, role: operator}";
constexpr char kAdmins[] = "- {claims: {groups: owners}, role: admin}";
constexpr char kPods[] = "- {claims: {groups: pods}, role: joiner, hosts: \"gpu-*\"}";

class IssuersServiceTest : public TlsFixture {
 protected:
  IssuersServiceTest() {
    server_.reset();
    Write("keys.jwks", json{{"keys", {rs_.Jwk(), es_.Jwk()}}}.dump());
    WriteRules({kResearch, kOperators, kAdmins, kPods});
    edit_ = [this](ServerOptions& options) {
      options.issuers_file = directory_.path() + "/issuers.yaml";
    };
    StartServer();
  }
  void Write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomic(directory_.path() + "/" + name, text).ok());
  }
  void WriteRules(const std::vector<std::string>& rules) {
    Write("issuers.yaml", absl::StrCat("corp:\n  issuer: ", kIssuer,
                                       "\n  audience: trainyard\n  algorithms: [RS256, ES256]\n"
                                       "  keys: ",
                                       directory_.path(), "/keys.jwks\n  rules:\n  ",
                                       absl::StrJoin(rules, "\n  "), "\n"));
  }
  static std::string Token(const JwtSigner& signer, const std::string& group,
                           const std::string& subject = "ada",
                           absl::Duration good_for = absl::Minutes(10)) {
    const absl::Time now = absl::Now();
    return signer.Token(signer.Header(), {{"iss", kIssuer},
                                          {"aud", "trainyard"},
                                          {"sub", subject},
                                          {"groups", {group, "everybody"}},
                                          {"iat", absl::ToUnixSeconds(now)},
                                          {"exp", absl::ToUnixSeconds(now + good_for)}});
  }
  v1::WhoAmIResponse WhoIs(const std::string& token) const {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::WhoAmIResponse who;
    const grpc::Status status =
        v1::AccessService::NewStub(Open(With(token)))->WhoAmI(&context, {}, &who);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return who;
  }
  // Waits until a call with the token ends so.
  void AwaitCode(const std::string& token, grpc::StatusCode wanted) const {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (List(With(token)).error_code() != wanted) {
      ASSERT_LT(absl::Now(), deadline) << wanted;
      absl::SleepFor(absl::Milliseconds(25));
    }
  }
  // A job in the namespace research that waits for a worker for ever.
  std::string Submit(const std::string& token) const {
    v1::SubmitJobRequest submit;
    submit.set_namespace_("research");
    *submit.mutable_spec() = Spec();
    grpc::ClientContext context;
    SetDeadline(context);
    v1::SubmitJobResponse submitted;
    const grpc::Status status =
        v1::JobService::NewStub(Open(With(token)))->SubmitJob(&context, submit, &submitted);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(submitted.job().submitter(), "corp:ada");
    return submitted.job().id();
  }
  void Cancel(const std::string& token, const std::string& job_id) const {
    v1::CancelJobRequest cancel;
    cancel.set_job_id(job_id);
    grpc::ClientContext context;
    SetDeadline(context);
    v1::CancelJobResponse cancelled;
    const grpc::Status status =
        v1::JobService::NewStub(Open(With(token)))->CancelJob(&context, cancel, &cancelled);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  // Watches the job with `token`, does `change`, and then cancels the job, which a watch would
  // show. Returns whether it did.
  bool WatchGoesOnAfter(const std::string& token, const std::function<void()>& change) {
    const std::string job_id = Submit(Token(es_, "sre"));
    v1::WatchJobRequest watch;
    watch.set_job_id(job_id);
    grpc::ClientContext context;
    SetDeadline(context);
    const auto stream = v1::JobService::NewStub(Open(With(token)))->WatchJob(&context, watch);
    v1::WatchJobResponse response;
    EXPECT_TRUE(stream->Read(&response)) << stream->Finish().error_message();
    change();
    Cancel(Token(es_, "sre"), job_id);
    bool shown = false;
    while (stream->Read(&response)) shown |= response.job().state() == v1::JOB_STATE_CANCELLED;
    EXPECT_EQ(stream->Finish().ok(), shown);
    return shown;
  }

  const JwtSigner rs_{"RS256"}, es_{"ES256"};
};

TEST_F(IssuersServiceTest, PeopleComeInByEitherAlgorithmAndLearnWhoTheyAre) {
  for (const JwtSigner* signer : {&rs_, &es_}) {
    const std::string token = Token(*signer, "research", "ada@example.org");
    const v1::WhoAmIResponse who = WhoIs(token);
    EXPECT_EQ(who.name(), "corp:ada@example.org");
    ASSERT_EQ(who.roles_size(), 1);
    EXPECT_EQ(who.roles(0), v1::ROLE_SUBMITTER);
    EXPECT_EQ(who.namespace_(), "research");
    const absl::Time until = absl::FromUnixSeconds(who.expire_time().seconds());
    EXPECT_GT(until, absl::Now() + absl::Minutes(9));
    EXPECT_LE(until, absl::Now() + absl::Minutes(10));
    EXPECT_TRUE(List(With(token)).ok());
    EXPECT_EQ(Call("/trainyard.v1.AccessService/ListGrants", With(token)).error_code(),
              grpc::PERMISSION_DENIED);
  }
}

TEST_F(IssuersServiceTest, WhatIsRefusedReachesNoHandler) {
  const auto handled = [&] {
    std::vector<std::string> lines = absl::StrSplit(
        prometheus::TextSerializer().Serialize(server_->registry()->Collect()), '\n');
    std::erase_if(lines, [](const std::string& line) {
      return !line.starts_with("grpc_server_handled_total{");
    });
    return lines;
  };
  const std::string good = Token(rs_, "sre");
  ASSERT_TRUE(List(With(good)).ok());
  const auto before = handled();
  const JwtSigner thief("RS256");
  std::string damaged = good;
  damaged[damaged.size() / 2] ^= 1;
  const std::vector<std::pair<std::string, std::string>> refused = {
      {"another key with the right key's name", Token(thief, "sre")},
      {"an algorithm that is not allowed", Token(JwtSigner("EdDSA"), "sre")},
      {"damaged", damaged},
      {"expired", Token(rs_, "sre", "ada", -absl::Minutes(2))},
      {"good for too long", Token(rs_, "sre", "ada", absl::Hours(25))},
      {"without its signature", good.substr(0, good.rfind('.') + 1)},
      {"without alg", rs_.Token(json::object(), {{"iss", kIssuer}})},
  };
  for (const auto& [what, token] : refused) {
    const grpc::Status status = List(With(token));
    EXPECT_EQ(status.error_code(), grpc::UNAUTHENTICATED) << what << status.error_message();
    EXPECT_THAT(status.error_message(), Not(HasSubstr(token.substr(0, 30)))) << what;
  }
  const grpc::Status nobody = List(With(Token(rs_, "guests")));
  EXPECT_EQ(nobody.error_code(), grpc::PERMISSION_DENIED);
  EXPECT_THAT(nobody.error_message(), HasSubstr("the rules look at: groups"));
  // More than gRPC takes as a header.
  EXPECT_FALSE(List(With(Token(rs_, std::string(20'000, 'x')))).ok());
  EXPECT_EQ(handled(), before) << "a handler was reached";
}

TEST_F(IssuersServiceTest, ARuleThatIsRemovedOrChangedEndsStreams) {
  const std::string ada = Token(rs_, "research");
  EXPECT_TRUE(WatchGoesOnAfter(ada, [] {}));
  EXPECT_FALSE(WatchGoesOnAfter(ada, [&] {
    WriteRules({kOperators});
    AwaitCode(ada, grpc::PERMISSION_DENIED);
  }));
  WriteRules({kResearch, kOperators});
  AwaitCode(ada, grpc::OK);
  EXPECT_FALSE(WatchGoesOnAfter(ada, [&] {
    WriteRules({"- {claims: {groups: research}, role: submitter, namespace: product}", kOperators});
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (WhoIs(ada).namespace_() != "product") {
      ASSERT_LT(absl::Now(), deadline);
      absl::SleepFor(absl::Milliseconds(25));
    }
  })) << "who acts in another namespace now saw a job of the one before";
  EXPECT_EQ(WhoIs(ada).namespace_(), "product");
}

TEST_F(IssuersServiceTest, MachinesJoinAsTheRuleSaysAndAsOftenAsTheyLike) {
  const std::string pod = Token(es_, "pods", "system:serviceaccount:train:worker");
  Credential one, two, other;
  EXPECT_TRUE(Join(pod, "w-1", one, "gpu-1").ok());
  EXPECT_TRUE(Join(pod, "w-1", one, "gpu-1").ok()) << "its answer may have been lost";
  EXPECT_TRUE(Join(pod, "w-2", two, "gpu-2").ok());
  const grpc::Status elsewhere = Join(pod, "w-3", other, "cpu-1");
  EXPECT_EQ(elsewhere.error_code(), grpc::FAILED_PRECONDITION);
  EXPECT_THAT(elsewhere.error_message(), HasSubstr("gpu-*"));
  EXPECT_EQ(Join(pod, "w-1", other, "gpu-1").error_code(), grpc::FAILED_PRECONDITION)
      << "another key is that worker";
  EXPECT_EQ(List(With(pod)).error_code(), grpc::PERMISSION_DENIED) << "a joiner joins";
  EXPECT_EQ(Join(Token(es_, "owners"), "w-4", other, "gpu-4").error_code(),
            grpc::PERMISSION_DENIED);
  // Who joined is on the list of grants, and says by whom.
  grpc::ClientContext context;
  SetDeadline(context);
  v1::ListGrantsResponse grants;
  ASSERT_TRUE(v1::AccessService::NewStub(Open(With(Token(rs_, "owners"))))
                  ->ListGrants(&context, {}, &grants)
                  .ok());
  ASSERT_EQ(grants.grants_size(), 2);
  EXPECT_EQ(grants.grants(0).created_by(), "corp:system:serviceaccount:train:worker");
}

TEST_F(IssuersServiceTest, EachPersonHasARateOfItsOwn) {
  const auto jobs = v1::JobService::NewStub(Open(With(Token(rs_, "sre", "ada"))));
  int refused = 0;
  for (int i = 0; i < 1000 && refused < 10; ++i) {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::ListJobsResponse response;
    const grpc::Status status = jobs->ListJobs(&context, {}, &response);
    refused += status.error_code() == grpc::RESOURCE_EXHAUSTED;
  }
  EXPECT_EQ(refused, 10);
  EXPECT_TRUE(List(With(Token(rs_, "sre", "bob"))).ok());
}

TEST_F(IssuersServiceTest, WhatPeopleChangeIsOnRecordByTheirNames) {
  const std::string ada = Token(rs_, "owners");
  Cancel(ada, Submit(ada));
  grpc::ClientContext context;
  SetDeadline(context);
  v1::ListAuditResponse audit;
  ASSERT_TRUE(v1::AccessService::NewStub(Open(With(ada)))->ListAudit(&context, {}, &audit).ok());
  ASSERT_GE(audit.entries_size(), 2);
  for (const v1::AuditEntry& entry : audit.entries()) EXPECT_EQ(entry.caller(), "corp:ada");
}

TEST_F(IssuersServiceTest, AControllerWhoseIssuersAreWrongDoesNotStart) {
  server_.reset();
  Write("keys.jwks", "{}");
  ServerOptions options;
  options.state_directory = State();
  options.listen = {"0.0.0.0", port_};
  edit_(options);
  const auto server = Server::Start(options, RealClock());
  EXPECT_TRUE(absl::IsInvalidArgument(server.status())) << server.status();
  EXPECT_THAT(server.status().ToString(), HasSubstr("keys of corp"));
}

}  // namespace
}  // namespace trainyard::controller
