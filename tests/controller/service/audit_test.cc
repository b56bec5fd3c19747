// Proves that each call which changes something is on record before its answer, that refusals are,
// too, that the record tells no secret, and that whoever changes, removes or cuts off entries of
// the log is found out by the command line.

#include <gmock/gmock.h>

#include <cstdio>
#include <set>

#include "controller/access/methods.h"
#include "controller/store/sqlite.h"
#include "tests/controller/testing/server_fixture.h"
#include "tests/controller/testing/tls_fixture.h"

namespace trainyard::controller {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

std::vector<v1::AuditEntry> Entries(const std::shared_ptr<grpc::Channel>& channel,
                                    uint64_t after = 0) {
  v1::ListAuditRequest request;
  request.set_after(after);
  request.set_page_size(5'000);
  grpc::ClientContext context;
  v1::ListAuditResponse response;
  const grpc::Status status =
      v1::AccessService::NewStub(channel)->ListAudit(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return {response.entries().begin(), response.entries().end()};
}

std::string Text(const v1::AuditEntry& e) {
  return absl::StrCat(e.caller(), " ", e.method(), " ", e.target(), " in ", e.namespace_(), ": ",
                      e.outcome(), " ", e.message(), " (", e.detail(), ")");
}

class AuditTest : public ServerFixture {
 protected:
  std::vector<std::string> Texts(uint64_t after = 0) {
    std::vector<std::string> texts;
    for (const v1::AuditEntry& entry : Entries(channel_, after)) texts.push_back(Text(entry));
    return texts;
  }
  v1::CreateTokenResponse CreateToken(const std::string& name, v1::Role role) {
    v1::CreateTokenRequest request;
    request.set_name(name);
    request.set_role(role);
    grpc::ClientContext context;
    v1::CreateTokenResponse response;
    EXPECT_TRUE(
        v1::AccessService::NewStub(channel_)->CreateToken(&context, request, &response).ok());
    return response;
  }
};

TEST_F(AuditTest, ChangesOfJobsAreOnRecordWithWhoAskedForThem) {
  const std::string id = MustSubmit(Spec());
  v1::Job again;
  ASSERT_TRUE(Submit(Spec(), &again, "once").ok());
  ASSERT_TRUE(Submit(Spec(), &again, "once").ok()) << "repeated, which changes nothing";
  ASSERT_TRUE(Submit(Spec(), nullptr, "", true).ok()) << "validated alone";
  Cancel(id);
  Cancel(id);
  EXPECT_THAT(Texts(),
              ElementsAre("local JobService.SubmitJob " + id + " in default: OK  (tiny)",
                          "local JobService.SubmitJob " + again.id() + " in default: OK  (tiny)",
                          "local JobService.CancelJob " + id + " in default: OK  ()"));
  const std::vector<v1::AuditEntry> entries = Entries(channel_);
  EXPECT_THAT(entries.front().peer(), StartsWith("ipv4:127.0.0.1:"));
  EXPECT_NEAR(double(entries.front().time().seconds()), double(absl::ToUnixSeconds(absl::Now())),
              60);
}

TEST_F(AuditTest, RefusalsAreOnRecordAndSoIsWhy) {
  v1::JobSpec bad = Spec();
  bad.set_steps(0);
  EXPECT_FALSE(Submit(bad).ok());
  v1::CancelJobRequest cancel;
  cancel.set_job_id("j-000000000a");
  cancel.set_reason(std::string(100'000, 'x'));
  grpc::ClientContext context;
  v1::CancelJobResponse cancelled;
  EXPECT_EQ(jobs_->CancelJob(&context, cancel, &cancelled).error_code(), grpc::NOT_FOUND);
  const std::vector<std::string> texts = Texts();
  ASSERT_THAT(texts, SizeIs(2));
  EXPECT_THAT(texts[0], AllOf(HasSubstr("SubmitJob  in : INVALID_ARGUMENT"), HasSubstr("steps")));
  EXPECT_THAT(texts[1], HasSubstr("CancelJob j-000000000a in : NOT_FOUND"));
  EXPECT_LT(texts[1].size(), 1000u) << "callers do not fill the disk";
}

TEST_F(AuditTest, WhoMayNotIsOnRecord) {
  const v1::CreateTokenResponse viewer = CreateToken("vera", v1::ROLE_VIEWER);
  const auto stub = v1::JobService::NewStub(
      Dial(server_->address().ToString(), {.token = viewer.token()}, grpc::ChannelArguments()));
  v1::SubmitJobRequest request;
  *request.mutable_spec() = Spec();
  v1::SubmitJobResponse response;
  grpc::ClientContext context;
  EXPECT_EQ(stub->SubmitJob(&context, request, &response).error_code(), grpc::PERMISSION_DENIED);
  // Nobody waits for this entry, but what is told later stands behind it.
  CreateToken("next", v1::ROLE_VIEWER);
  const std::vector<v1::AuditEntry> entries = Entries(channel_);
  ASSERT_THAT(entries, SizeIs(3));
  EXPECT_THAT(Text(entries[1]), StartsWith("vera JobService.SubmitJob  in : PERMISSION_DENIED"));
  EXPECT_EQ(entries[1].credential(), viewer.grant().id());
}

// Bug it must catch: who may do nothing pushes all history out of the log.
TEST_F(AuditTest, ManyRefusalsBecomeOneEntryThatCountsThem) {
  const v1::CreateTokenResponse viewer = CreateToken("vera", v1::ROLE_VIEWER);
  const auto stub = v1::JobService::NewStub(
      Dial(server_->address().ToString(), {.token = viewer.token()}, grpc::ChannelArguments()));
  v1::SubmitJobResponse response;
  for (int i = 0; i < 100; ++i) {
    grpc::ClientContext context;
    EXPECT_EQ(stub->SubmitJob(&context, {}, &response).error_code(), grpc::PERMISSION_DENIED);
  }
  StopServer();
  StartServer();
  const std::vector<v1::AuditEntry> entries = Entries(channel_);
  ASSERT_THAT(entries, SizeIs(1 + Audit::kEachMinute + 1));
  EXPECT_THAT(Text(entries.back()),
              AllOf(StartsWith("vera JobService.SubmitJob  in : PERMISSION_DENIED"),
                    HasSubstr(absl::StrCat("the last of ", 100 - Audit::kEachMinute, " calls"))));
  EXPECT_EQ(entries.back().credential(), viewer.grant().id());
}

TEST_F(AuditTest, ARevocationIsOnRecordBeforeItIsMade) {
  v1::RevokeGrantRequest request;
  request.set_id(CreateToken("vera", v1::ROLE_VIEWER).grant().id());
  v1::RevokeGrantResponse response;
  grpc::ClientContext context;
  const auto access = v1::AccessService::NewStub(channel_);
  ASSERT_TRUE(access->RevokeGrant(&context, request, &response).ok());
  const std::string what = "local AccessService.RevokeGrant " + request.id() + " in : ";
  EXPECT_THAT(Texts(1), ElementsAre(what + "STARTED  ()", what + "OK  (viewer vera)"));
}

class TlsAuditTest : public TlsFixture {};

// By the proto files: a method that changes something and is forgotten here fails the test.
TEST_F(TlsAuditTest, EveryMethodThatChangesSomethingIsOnRecord) {
  const std::string admin = Token(v1::ROLE_ADMIN), joiner = Token(v1::ROLE_JOINER);
  const auto channel = Open(With(admin));
  const auto access = v1::AccessService::NewStub(channel);
  std::vector<std::string> secrets = {admin, joiner};

  grpc::ClientContext create, revoke, renew, submit, cancel;
  v1::CreateTokenRequest wanted;
  wanted.set_name("short");
  wanted.set_role(v1::ROLE_VIEWER);
  v1::CreateTokenResponse made;
  ASSERT_TRUE(access->CreateToken(&create, wanted, &made).ok());
  secrets.push_back(made.token());
  v1::RevokeGrantRequest gone;
  gone.set_id(made.grant().id());
  v1::RevokeGrantResponse revoked;
  ASSERT_TRUE(access->RevokeGrant(&revoke, gone, &revoked).ok());

  Credential worker;
  ASSERT_TRUE(Join(joiner, "w-audit", worker).ok());
  secrets.push_back(worker.identity.key_pem);
  v1::RenewCertificateRequest again;
  again.set_certificate_request(NewRequest(worker.identity.key_pem, "x").value());
  v1::RenewCertificateResponse renewed;
  ASSERT_TRUE(
      v1::AccessService::NewStub(Open(worker))->RenewCertificate(&renew, again, &renewed).ok());
  ScriptedWorker stream(Open(worker), "w-audit", 1, {}, {},
                        [](v1::Register& m) { m.set_hostname("host"); });
  stream.Await([](const auto& m) { return m.has_registered(); });

  const auto jobs = v1::JobService::NewStub(channel);
  v1::SubmitJobRequest job;
  job.mutable_spec()->set_name("bad");
  v1::SubmitJobResponse submitted;
  EXPECT_FALSE(jobs->SubmitJob(&submit, job, &submitted).ok());
  v1::CancelJobRequest end;
  end.set_job_id("j-none");
  v1::CancelJobResponse ended;
  EXPECT_FALSE(jobs->CancelJob(&cancel, end, &ended).ok());

  std::set<std::string> wanted_methods, found;
  const Methods methods;
  for (const auto& [path, method] : methods.all()) {
    if (method.changes()) wanted_methods.insert(path.substr(std::string("/trainyard.v1.").size()));
  }
  for (const v1::AuditEntry& entry : Entries(channel)) {
    std::string path = entry.method();
    path.replace(path.find('.'), 1, "/");
    found.insert(path);
    for (const std::string& secret : secrets) {
      EXPECT_THAT(entry.DebugString(), Not(HasSubstr(secret.substr(secret.size() / 2)))) << path;
    }
  }
  EXPECT_EQ(found, wanted_methods);
}

// The command line against logs that somebody with the state directory has changed.
class ChangedAuditTest : public ServerFixture {
 protected:
  // Of `trainyard audit --verify`: what it prints, and its exit code.
  std::pair<std::string, int> Verify(const std::string& more = "") {
    const std::string command =
        absl::StrCat(std::getenv("TRAINYARD_BIN"), "/trainyard audit --verify --controller ",
                     server_->address().ToString(), " --token-file ", directory_.path(),
                     "/state/token ", more, " 2>&1");
    FILE* const pipe = ::popen(command.c_str(), "r");
    std::string text(10'000, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), pipe));
    return {text, WEXITSTATUS(::pclose(pipe))};
  }
  // Does `sql` to the store while no controller runs.
  void Change(const std::string& sql) {
    StopServer();
    auto database = Database::Open(directory_.path() + "/state/store.db");
    ASSERT_TRUE(database->Execute(sql.c_str()).ok());
    *database = *Database::Open(directory_.path() + "/other.db");
    StartServer();
  }
};

TEST_F(ChangedAuditTest, IsFoundOut) {
  for (int i = 0; i < 5; ++i) MustSubmit(Spec());
  const auto [text, code] = Verify();
  EXPECT_EQ(code, 0) << text;
  EXPECT_THAT(text, HasSubstr("unbroken: entries 1 to 5"));
  const std::string newest = Entries(channel_).back().hash();
  EXPECT_THAT(text, HasSubstr("5:" + newest));
  EXPECT_EQ(Verify("--since 5:" + newest).second, 0);
  EXPECT_THAT(Verify("--since 5:" + std::string(64, '0')).first, HasSubstr("and had 0000"));
  EXPECT_THAT(Verify("--since 6:" + newest).first, HasSubstr("entry 6 is not there"));
  EXPECT_EQ(Verify("--since 5").second, 2);
  const auto since = [&] { return Verify("--since 5:" + newest).first; };
  EXPECT_THAT(since(), HasSubstr("unbroken: entries 5 to 5"));
  Change("UPDATE audit SET caller = 'mallory' WHERE n = 5");
  EXPECT_THAT(since(), HasSubstr("entry 5 or the one before was changed"));
  Change("UPDATE audit SET caller = 'local' WHERE n = 5");

  Change("UPDATE audit SET caller = 'mallory' WHERE n = 3");
  EXPECT_THAT(Verify().first, HasSubstr("entry 3 or the one before was changed"));
  EXPECT_EQ(Verify().second, 1);
  Change("UPDATE audit SET caller = 'local' WHERE n = 3");
  EXPECT_EQ(Verify().second, 0) << "as it was";
  Change("DELETE FROM audit WHERE n = 5");
  EXPECT_EQ(Verify().second, 0) << "cut off, which the log alone cannot tell";
  EXPECT_THAT(Verify("--since 5:" + newest).first, HasSubstr("entry 5 is not there"));
  Change("DELETE FROM audit WHERE n = 2");
  EXPECT_THAT(Verify().first, HasSubstr("entry 2 is missing"));
  Change("DELETE FROM audit WHERE n < 3");
  EXPECT_THAT(Verify().first, HasSubstr("entries 1 to 2 are missing"));
}

TEST_F(ChangedAuditTest, GoesOnFromTheEntryBeforeAfterARestart) {
  MustSubmit(Spec());
  StopServer();
  StartServer();
  MustSubmit(Spec());
  EXPECT_THAT(Verify().first, HasSubstr("unbroken: entries 1 to 2"));
}

}  // namespace
}  // namespace trainyard::controller
