// Proves who may call what: every method of every service, called by every kind of caller with
// every kind of credential, over TLS (docs/reliability.md, S1). Who may call a method stands here a
// second time, apart from the proto files, so that a proto file that lets others in is noticed.

#include <google/protobuf/descriptor_database.h>
#include <google/protobuf/dynamic_message.h>
#include <prometheus/text_serializer.h>

#include <deque>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/files.h"
#include "controller/access/grants.h"
#include "tests/controller/testing/moved_clock.h"
#include "tests/controller/testing/tls_fixture.h"
#include "tests/security/jwt_signer.h"

namespace trainyard::controller {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;
using trainyard::testing::JwtSigner;
using Roles = std::set<v1::Role>;

struct Rule {
  Roles may_call;
  // What the handler answers whoever may call: of a request without fields or, where the method
  // names a job, of a job that was cancelled.
  grpc::StatusCode answer = grpc::OK;
};

const Roles kLook = {v1::ROLE_VIEWER, v1::ROLE_SUBMITTER, v1::ROLE_OPERATOR, v1::ROLE_ADMIN};
const Roles kChange = {v1::ROLE_SUBMITTER, v1::ROLE_OPERATOR, v1::ROLE_ADMIN};
const Roles kAdmin = {v1::ROLE_ADMIN};
const Roles kJoiner = {v1::ROLE_JOINER};
const Roles kWorker = {v1::ROLE_WORKER};
constexpr v1::Role kRoles[] = {v1::ROLE_VIEWER, v1::ROLE_SUBMITTER, v1::ROLE_OPERATOR,
                               v1::ROLE_ADMIN,  v1::ROLE_JOINER,    v1::ROLE_WORKER};

const std::map<std::string, Rule>& Rules() {
  static const std::map<std::string, Rule> rules = {
      {"/trainyard.v1.AccessService/WhoAmI", {kLook}},
      {"/trainyard.v1.AccessService/CreateToken", {kAdmin, grpc::INVALID_ARGUMENT}},
      {"/trainyard.v1.AccessService/ListGrants", {kAdmin}},
      {"/trainyard.v1.AccessService/RevokeGrant", {kAdmin, grpc::NOT_FOUND}},
      {"/trainyard.v1.AccessService/Join", {kJoiner, grpc::INVALID_ARGUMENT}},
      {"/trainyard.v1.AccessService/RenewCertificate", {kWorker, grpc::INVALID_ARGUMENT}},
      {"/trainyard.v1.AccessService/ListAudit", {kAdmin}},
      {"/trainyard.v1.ClusterService/ListWorkers", {kLook}},
      {"/trainyard.v1.ClusterService/GetWorker", {kLook, grpc::NOT_FOUND}},
      {"/trainyard.v1.JobService/SubmitJob", {kChange, grpc::INVALID_ARGUMENT}},
      {"/trainyard.v1.JobService/GetJob", {kLook}},
      {"/trainyard.v1.JobService/ListJobs", {kLook}},
      {"/trainyard.v1.JobService/CancelJob", {kChange}},
      {"/trainyard.v1.JobService/WatchJob", {kLook}},
      {"/trainyard.v1.JobService/StreamSteps", {kLook}},
      {"/trainyard.v1.JobService/StreamLogs", {kLook}},
      {"/trainyard.v1.JobService/ListEvents", {kLook}},
      {"/trainyard.v1.WorkerService/Connect", {kWorker, grpc::INVALID_ARGUMENT}},
      {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", {kLook}},
      // gRPC has no descriptor of these two in the program.
      {"/grpc.health.v1.Health/Check", {kLook}},
      {"/grpc.health.v1.Health/Watch", {kLook, grpc::DEADLINE_EXCEEDED}},
  };
  return rules;
}

// Every method that the program has a descriptor of.
std::map<std::string, const MethodDescriptor*> MethodsOfProtoFiles() {
  std::vector<std::string> files;
  EXPECT_TRUE(DescriptorPool::internal_generated_database()->FindAllFileNames(&files));
  std::map<std::string, const MethodDescriptor*> methods;
  for (const std::string& name : files) {
    const auto* const file = DescriptorPool::generated_pool()->FindFileByName(name);
    for (int s = 0; s < file->service_count(); ++s) {
      const ServiceDescriptor& service = *file->service(s);
      for (int m = 0; m < service.method_count(); ++m) {
        const MethodDescriptor* const method = service.method(m);
        methods[absl::StrCat("/", service.full_name(), "/", method->name())] = method;
      }
    }
  }
  return methods;
}

// Somebody who calls every method, and what to expect.
struct Caller {
  std::string what;
  v1::Role role = v1::ROLE_UNSPECIFIED;  // Unspecified: is let in nowhere.
  Credential credential;
  bool sees_the_job = true;
  grpc::StatusCode refusal = grpc::UNAUTHENTICATED;  // Of who is let in nowhere.
  std::string grant_id = {};
};

class MatrixTest : public TlsFixture {
 protected:
  static constexpr char kNamespace[] = "research";

  // Whoever shows the result has the role for so many days.
  Caller Make(v1::Role role, const std::string& what, int days,
              const std::string& name_space = kNamespace) {
    v1::Grant grant;
    grant.set_name("somebody");
    grant.set_role(role);
    if (role <= v1::ROLE_SUBMITTER) grant.set_namespace_(name_space);
    if (role == v1::ROLE_JOINER) grant.mutable_join()->set_uses(9);
    if (role == v1::ROLE_WORKER) grant.set_worker_id(absl::StrCat("w-", what));
    grant.mutable_expire_time()->set_seconds(
        absl::ToUnixSeconds(absl::Now() + absl::Hours(24) * days));
    NewGrant made = *MakeToken(grant, absl::Now());
    Caller caller{.what = absl::StrCat(NameOf(role), ", ", what),
                  .role = role,
                  .credential = With(made.token),
                  .sees_the_job = name_space == kNamespace,
                  .grant_id = made.stored.grant.id()};
    if (role == v1::ROLE_WORKER) {
      made.stored.key_hash = std::exchange(made.stored.secret_hash, "");
      caller.credential = Signed(Own(), WorkerFacts(grant.worker_id(), caller.grant_id));
    }
    EXPECT_TRUE((*Grants::Open(GrantsDirectory(State()), clock_))->Put(made.stored).ok());
    return caller;
  }
  // Those whom an organisation's tokens let in: the claim role says what each is. After End.
  std::vector<Caller> PeopleOfIssuer() {
    const auto token = [&](const JwtSigner& signer, const std::string& role, absl::Duration age) {
      const int64_t now = absl::ToUnixSeconds(clock_.Now() - age);
      return With(signer.Token(signer.Header(), {{"iss", "https://login.example.org"},
                                                 {"aud", "trainyard"},
                                                 {"sub", absl::StrReplaceAll(role, {{" ", "-"}})},
                                                 {"role", role},
                                                 {"iat", now},
                                                 {"exp", now + 600}}));
    };
    const JwtSigner thief("ES256");
    std::vector<Caller> people = {{.what = "of an issuer, without a rule",
                                   .credential = token(issuer_, "worker", absl::ZeroDuration()),
                                   .refusal = grpc::PERMISSION_DENIED}};
    for (const v1::Role role : kRoles) {
      if (role == v1::ROLE_WORKER) continue;
      const std::string name = NameOf(role);
      const Caller good{.what = name + ", of an issuer",
                        .role = role,
                        .credential = token(issuer_, name, absl::ZeroDuration())};
      people.push_back(good);
      std::string malformed = good.credential.token;
      malformed[malformed.size() - 9] ^= 1;
      for (const auto& [what, credential] : std::vector<std::pair<std::string, Credential>>{
               {"malformed", With(malformed)},
               {"unknown", token(thief, name, absl::ZeroDuration())},
               {"expired", token(issuer_, name, absl::Hours(1))}}) {
        people.push_back({.what = good.what + ", " + what, .credential = credential});
      }
      if (role > v1::ROLE_SUBMITTER) continue;
      people.push_back(good);
      people.back().credential = token(issuer_, name + " elsewhere", absl::ZeroDuration());
      people.back().sees_the_job = false;
    }
    return people;
  }
  std::string WriteIssuers() {
    std::string rules;
    for (const v1::Role role : kRoles) {
      if (role == v1::ROLE_WORKER) continue;
      const std::string name = NameOf(role);
      const bool of_namespace = role <= v1::ROLE_SUBMITTER;
      absl::StrAppend(&rules, "  - {claims: {role: ", name, "}, role: ", name,
                      of_namespace ? ", namespace: research" : "", "}\n");
      if (!of_namespace) continue;
      absl::StrAppend(&rules, "  - {claims: {role: ", name, " elsewhere}, role: ", name,
                      ", namespace: product}\n");
    }
    const std::string keys = directory_.path() + "/keys.jwks";
    const std::string issuers = directory_.path() + "/issuers.yaml";
    EXPECT_TRUE(WriteFileAtomic(keys, nlohmann::json{{"keys", {issuer_.Jwk()}}}.dump()).ok());
    EXPECT_TRUE(
        WriteFileAtomic(issuers, absl::StrCat("corp:\n  issuer: https://login.example.org\n"
                                              "  audience: trainyard\n  algorithms: [ES256]\n"
                                              "  keys: ",
                                              keys, "\n  rules:\n", rules))
            .ok());
    return issuers;
  }
  void StartAgain() {
    server_.reset();
    ServerOptions options;
    options.state_directory = State();
    options.listen = {"0.0.0.0", port_};
    options.tick_every = absl::Milliseconds(20);
    options.issuers_file = WriteIssuers();
    auto server = Server::Start(options, clock_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  // Who shows what the controller never gave to anybody.
  std::vector<Caller> Strangers() {
    CertificateFacts reader = WorkerFacts("w-good", "x"), nameless = reader;
    reader.uris = {"trainyard://reader/prometheus"};
    nameless.uris = {"trainyard://worker/w-good"};
    std::vector<Caller> strangers = {
        {.what = "nobody", .credential = With("")},
        {.what = "reader of metrics", .credential = Signed(Own(), reader)},
        {.what = "worker, malformed", .credential = Signed(Own(), nameless)},
        {.what = "worker, unknown", .credential = Signed(Own(), WorkerFacts("w-good", "nogrant1"))},
    };
    for (const v1::Role role : kRoles) {
      if (role == v1::ROLE_WORKER) continue;
      const std::string token = Make(role, "for strangers", 300).credential.token;
      std::string malformed = token, unknown = trainyard::NewToken()->text;
      malformed.back() ^= 1;
      strangers.push_back({.what = NameOf(role) + ", malformed", .credential = With(malformed)});
      strangers.push_back({.what = NameOf(role) + ", unknown", .credential = With(unknown)});
    }
    return strangers;
  }
  // After this, the callers' time is over, or they are revoked.
  void End(std::vector<Caller>& callers) {
    for (Caller& caller : callers) {
      // Known until now, or later refusals would say nothing of time and revocation.
      EXPECT_NE(List(caller.credential).error_code(), grpc::UNAUTHENTICATED) << caller.what;
      if (absl::StrContains(caller.what, "revoked")) {
        const std::string file = GrantsDirectory(State()) + "/" + caller.grant_id + ".json";
        EXPECT_EQ(::unlink(file.c_str()), 0) << caller.what;
      }
      caller.role = v1::ROLE_UNSPECIFIED;
    }
    clock_.Pass(absl::Hours(48));
    for (const Caller& caller : callers) {
      Until([&] { return List(caller.credential).error_code() == grpc::UNAUTHENTICATED; });
    }
  }
  // A job of the namespace that has ended, so that nobody's call changes what others see.
  std::string CancelledJob(const std::vector<Caller>& callers) const {
    const auto admin = std::find_if(callers.begin(), callers.end(), [](const Caller& caller) {
      return caller.role == v1::ROLE_ADMIN;
    });
    const auto jobs = v1::JobService::NewStub(Open(admin->credential));
    v1::SubmitJobRequest submit;
    submit.set_namespace_(kNamespace);
    *submit.mutable_spec() = Spec();
    grpc::ClientContext submitting, cancelling;
    SetDeadline(submitting);
    SetDeadline(cancelling);
    v1::SubmitJobResponse submitted;
    EXPECT_TRUE(jobs->SubmitJob(&submitting, submit, &submitted).ok());
    v1::CancelJobRequest cancel;
    cancel.set_job_id(submitted.job().id());
    v1::CancelJobResponse cancelled;
    EXPECT_TRUE(jobs->CancelJob(&cancelling, cancel, &cancelled).ok());
    return submitted.job().id();
  }

  // The sum of a counter over its labels.
  double Count(const std::string& name) const {
    const std::string page = prometheus::TextSerializer().Serialize(server_->registry()->Collect());
    double sum = 0;
    for (const absl::string_view line : absl::StrSplit(page, '\n')) {
      double value = 0;
      if (!absl::StartsWith(line, name + "{")) continue;
      EXPECT_TRUE(absl::SimpleAtod(line.substr(line.rfind(' ') + 1), &value)) << line;
      sum += value;
    }
    return sum;
  }

  MovedClock clock_;
  const JwtSigner issuer_{"ES256"};
};

bool NamesJob(const MethodDescriptor* method) {
  return method != nullptr && method->input_type()->FindFieldByName("job_id") != nullptr;
}

std::string RequestOf(const MethodDescriptor* method, const std::string& job_id) {
  if (!NamesJob(method)) return "";
  google::protobuf::DynamicMessageFactory factory;
  const std::unique_ptr<google::protobuf::Message> request(
      factory.GetPrototype(method->input_type())->New());
  request->GetReflection()->SetString(request.get(),
                                      method->input_type()->FindFieldByName("job_id"), job_id);
  return request->SerializeAsString();
}

grpc::StatusCode Wanted(const Caller& caller, const Rule& rule, bool names_job) {
  if (caller.role == v1::ROLE_UNSPECIFIED) return caller.refusal;
  if (!rule.may_call.contains(caller.role)) return grpc::PERMISSION_DENIED;
  return names_job && !caller.sees_the_job ? grpc::NOT_FOUND : rule.answer;
}

// Calls that are under way at the same time.
class Calls {
 public:
  void Start(grpc::GenericStub& stub, const std::string& path, const std::string& bytes) {
    Call& call = calls_.emplace_back();
    // Long for machines that are busy; the stream that never ends by itself ends sooner.
    const bool endless = absl::EndsWith(path, "Health/Watch");
    call.context.set_deadline(std::chrono::system_clock::now() +
                              std::chrono::seconds(endless ? 2 : 30));
    const grpc::Slice slice(bytes);
    call.request = grpc::ByteBuffer(&slice, 1);
    stub.UnaryCall(&call.context, path, {}, &call.request, &call.response,
                   [&call](const grpc::Status& status) { call.ended.set_value(status); });
  }
  // In the order of their starts.
  std::vector<grpc::Status> Await() {
    std::vector<grpc::Status> statuses;
    for (Call& call : calls_) statuses.push_back(call.ended.get_future().get());
    calls_.clear();
    return statuses;
  }

 private:
  struct Call {
    grpc::ClientContext context;
    grpc::ByteBuffer request, response;
    std::promise<grpc::Status> ended;
  };
  std::deque<Call> calls_;
};

TEST(Rules, NameEveryMethodThatThereIs) {
  const auto methods = MethodsOfProtoFiles();
  EXPECT_GE(methods.size(), 19U);
  for (const auto& [path, method] : methods) {
    EXPECT_TRUE(Rules().contains(path)) << "say in this test who may call " << path;
  }
  for (const auto& [path, rule] : Rules()) {
    EXPECT_TRUE(methods.contains(path) || absl::StartsWith(path, "/grpc.health."))
        << "there is no " << path;
  }
}

TEST_F(MatrixTest, EveryMethodIsForWhomTheTableSaysAndForNobodyElse) {
  std::vector<Caller> callers = Strangers(), ending;
  for (const v1::Role role : kRoles) {
    callers.push_back(Make(role, "good", 300));
    if (role <= v1::ROLE_SUBMITTER) {
      callers.push_back(Make(role, "of another namespace", 300, "product"));
    }
    ending.push_back(Make(role, "expired", 1));
    ending.push_back(Make(role, "revoked", 300));
  }
  StartAgain();
  const std::string job_id = CancelledJob(callers);
  End(ending);
  callers.insert(callers.end(), ending.begin(), ending.end());
  for (const Caller& person : PeopleOfIssuer()) callers.push_back(person);

  const auto methods = MethodsOfProtoFiles();
  const auto method_of = [&](const std::string& path) {
    const auto found = methods.find(path);
    return found == methods.end() ? nullptr : found->second;
  };
  const double handled = Count("grpc_server_handled_total");
  const double refused = Count("trainyard_calls_refused_total");
  Calls calls;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs;
  for (const Caller& caller : callers) {
    stubs.push_back(std::make_unique<grpc::GenericStub>(Open(caller.credential)));
    for (const auto& [path, rule] : Rules()) {
      calls.Start(*stubs.back(), path, RequestOf(method_of(path), job_id));
    }
  }
  const std::vector<grpc::Status> statuses = calls.Await();
  size_t next = 0;
  int reached = 0, turned_away = 0;
  for (const Caller& caller : callers) {
    for (const auto& [path, rule] : Rules()) {
      const grpc::Status& status = statuses[next++];
      EXPECT_EQ(status.error_code(), Wanted(caller, rule, NamesJob(method_of(path))))
          << path << " by " << caller.what << ": " << status.error_message();
      const bool let_in = rule.may_call.contains(caller.role);
      reached += let_in;
      turned_away += !let_in;
    }
  }
  EXPECT_EQ(next, callers.size() * Rules().size());
  // A stream that its client gives up is counted when the server hears of it.
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (Count("grpc_server_handled_total") - handled < reached && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(9));
  }
  EXPECT_EQ(Count("grpc_server_handled_total") - handled, reached);
  EXPECT_EQ(Count("trainyard_calls_refused_total") - refused, turned_away);
}

}  // namespace
}  // namespace trainyard::controller
