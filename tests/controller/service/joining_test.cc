// Proves that a machine becomes a worker as its token says, no more often, and that worker alone
// (docs/reliability.md, S3).

#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <future>
#include <thread>

#include "common/files.h"
#include "controller/access/grants.h"
#include "security/secret_file.h"
#include "tests/controller/testing/disk_that_hangs.h"
#include "tests/controller/testing/tls_fixture.h"
#include "tests/testing/fake_clock.h"

namespace trainyard::controller {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class JoiningTest : public TlsFixture {
 protected:
  // How the stream of a worker that says it is this one ends, or whether it is registered.
  grpc::Status Register(const Credential& credential, const std::string& worker_id,
                        const std::string& hostname) const {
    const auto stub = v1::WorkerService::NewStub(Open(credential));
    grpc::ClientContext context;
    SetDeadline(context);
    const auto stream = stub->Connect(&context);
    v1::ConnectRequest request;
    auto* m = request.mutable_register_();
    m->set_protocol_version(2);
    m->set_worker_id(worker_id);
    m->set_instance_id("i-1");
    m->set_hostname(hostname);
    auto* device = m->add_devices();
    device->set_kind(v1::DEVICE_KIND_CPU);
    device->set_threads(1);
    stream->Write(request);
    v1::ConnectResponse response;
    const bool registered = stream->Read(&response) && response.has_registered();
    if (registered) stream->WritesDone();
    while (stream->Read(&response)) continue;
    const grpc::Status status = stream->Finish();
    return registered ? grpc::Status::OK : status;
  }
};

TEST_F(JoiningTest, OfAHundredThatComeAtOnceAsManyGetInAsTheTokenSays) {
  const std::string token = Token(v1::ROLE_JOINER, 3);
  std::atomic<int> joined = 0, refused = 0;
  std::vector<std::thread> machines;
  for (int i = 0; i < 100; ++i) {
    machines.emplace_back([&, i] {
      Credential credential;
      const grpc::Status status = Join(token, absl::StrCat("w-", i), credential);
      joined += status.ok();
      refused += status.error_code() == grpc::FAILED_PRECONDITION;
    });
  }
  for (std::thread& machine : machines) machine.join();
  EXPECT_EQ(joined, 3);
  EXPECT_EQ(refused, 97);
}

TEST_F(JoiningTest, WhoComesAgainWithItsKeyTakesNoOtherUse) {
  const std::string token = Token(v1::ROLE_JOINER);
  Credential worker, other;
  ASSERT_TRUE(Join(token, "w-1", worker).ok());
  const auto first = ReadCertificate(worker.identity.certificate_pem)->uris;
  ASSERT_TRUE(Join(token, "w-1", worker).ok()) << "its answer may have been lost";
  EXPECT_EQ(ReadCertificate(worker.identity.certificate_pem)->uris, first);
  EXPECT_EQ(Join(token, "w-2", other).error_code(), grpc::FAILED_PRECONDITION);
  const grpc::Status taken = Join(Token(v1::ROLE_JOINER), "w-1", other);
  EXPECT_EQ(taken.error_code(), grpc::FAILED_PRECONDITION);
  EXPECT_THAT(taken.error_message(), HasSubstr("another key"));
}

TEST_F(JoiningTest, AWorkerIsThatWorkerAloneOnThatHost) {
  const std::string token = Token(v1::ROLE_JOINER, 2);
  Credential one, two;
  ASSERT_TRUE(Join(token, "w-1", one, "host-1").ok());
  ASSERT_TRUE(Join(token, "w-2", two, "host-2").ok());
  EXPECT_TRUE(Register(one, "w-1", "host-1").ok());
  EXPECT_EQ(Register(one, "w-2", "host-1").error_code(), grpc::PERMISSION_DENIED);
  const grpc::Status renamed = Register(one, "w-1", "host-2");
  EXPECT_EQ(renamed.error_code(), grpc::PERMISSION_DENIED);
  EXPECT_THAT(renamed.error_message(),
              AllOf(HasSubstr("on the host host-1, as its certificate says"),
                    HasSubstr("If the host was renamed, start its worker with --join")));
  EXPECT_EQ(Register(two, "w-1", "host-1").error_code(), grpc::PERMISSION_DENIED);
}

TEST_F(JoiningTest, TheTokensLimitsHold) {
  v1::CreateTokenRequest request;
  request.set_name("rack");
  request.set_role(v1::ROLE_JOINER);
  request.mutable_join()->set_uses(5);
  request.mutable_join()->set_hosts("gpu-7-*");
  const std::string racks = MakeToken(State(), request, absl::Now())->token;
  request.mutable_valid()->set_seconds(31 * 24 * 3600);
  EXPECT_TRUE(absl::IsInvalidArgument(MakeToken(State(), request, absl::Now()).status()));
  request.clear_join();
  request.mutable_valid()->set_seconds(1);
  const std::string brief = MakeToken(State(), request, absl::Now())->token;
  Until([&] { return List(With(racks)).error_code() == grpc::PERMISSION_DENIED; });
  Credential worker;
  const grpc::Status elsewhere = Join(racks, "w-1", worker, "cpu-1");
  EXPECT_EQ(elsewhere.error_code(), grpc::FAILED_PRECONDITION);
  EXPECT_THAT(elsewhere.error_message(), HasSubstr("gpu-7-*"));
  EXPECT_TRUE(Join(racks, "w-1", worker, "gpu-7-01").ok());
  EXPECT_EQ(Join(racks, "w 1", worker, "gpu-7-01").error_code(), grpc::INVALID_ARGUMENT);
  absl::SleepFor(absl::Seconds(2));  // It was good for one.
  Credential late;
  EXPECT_EQ(Join(brief, "w-2", late).error_code(), grpc::UNAUTHENTICATED);
  EXPECT_EQ(Join(Token(v1::ROLE_ADMIN), "w-2", late).error_code(), grpc::PERMISSION_DENIED);
}

TEST_F(JoiningTest, ACertificateIsRenewedForTheSameWorkerUntilItIsRevoked) {
  Credential worker;
  ASSERT_TRUE(Join(Token(v1::ROLE_JOINER), "w-1", worker).ok());
  v1::RenewCertificateRequest request;
  request.set_certificate_request(NewRequest(worker.identity.key_pem, "x").value());
  v1::RenewCertificateResponse response;
  const auto renew = [&] {
    grpc::ClientContext context;
    SetDeadline(context);
    return v1::AccessService::NewStub(Open(worker))->RenewCertificate(&context, request, &response);
  };
  ASSERT_TRUE(renew().ok());
  const auto facts = *ReadCertificate(response.certificates());
  EXPECT_EQ(facts.uris, ReadCertificate(worker.identity.certificate_pem)->uris);
  EXPECT_GT(facts.not_after, absl::Now() + kCertificatesHold - absl::Minutes(1));
  WorkerName name;
  ASSERT_TRUE(ParseUri(facts.uris[0], name));
  ASSERT_EQ(::unlink((GrantsDirectory(State()) + "/" + name.grant_id + ".json").c_str()), 0);
  Until([&] { return !renew().ok(); });
  EXPECT_EQ(renew().error_code(), grpc::UNAUTHENTICATED);
}

// Bug it must catch: nobody learns who he is, or gets anything else said, while the disk takes no
// change of a grant.
TEST_F(JoiningTest, WhoAsksWaitsForNoChange) {
  const std::string admin = Token(v1::ROLE_ADMIN);
  const auto access = v1::AccessService::NewStub(Open(With(admin)));
  std::future<grpc::Status> made;
  {
    const DiskThatHangs disk;
    made = std::async(std::launch::async, [&] {
      v1::CreateTokenRequest request;
      request.set_name("a");
      request.set_role(v1::ROLE_VIEWER);
      grpc::ClientContext context;
      SetDeadline(context, absl::Minutes(1));
      v1::CreateTokenResponse response;
      return access->CreateToken(&context, request, &response);
    });
    disk.AwaitCaller();
    grpc::ClientContext asking, listing;
    SetDeadline(asking);
    SetDeadline(listing);
    v1::WhoAmIResponse who;
    const grpc::Status asked = access->WhoAmI(&asking, {}, &who);
    EXPECT_TRUE(asked.ok()) << asked.error_message();
    v1::ListAuditResponse log;
    const grpc::Status listed = access->ListAudit(&listing, {}, &log);
    EXPECT_TRUE(listed.ok()) << listed.error_message();
  }
  EXPECT_TRUE(made.get().ok());
}

// What docs/access.md says of an authority that is lost.
TEST_F(JoiningTest, UnderANewAuthorityAWorkerKeepsItsName) {
  Credential worker;
  ASSERT_TRUE(Join(Token(v1::ROLE_JOINER), "w-1", worker).ok());
  const Credential old = worker;
  const auto name = ReadCertificate(worker.identity.certificate_pem)->uris;
  server_.reset();
  ASSERT_EQ(::rename(AuthorityDirectory(State()).c_str(), (State() + "/old").c_str()), 0);
  ASSERT_TRUE(InitAuthority(State(), {"127.0.0.1"}, absl::Now()).ok());
  StartServer();
  EXPECT_FALSE(Register(old, "w-1", "host").ok()) << "it believes the old controller alone";
  Credential believes = old;
  believes.authorities = Own().certificate();
  EXPECT_FALSE(Register(believes, "w-1", "host").ok()) << "nobody believes the old authority";
  ASSERT_TRUE(Join(Token(v1::ROLE_JOINER), "w-1", worker).ok());
  EXPECT_EQ(ReadCertificate(worker.identity.certificate_pem)->uris, name);
  EXPECT_TRUE(Register(worker, "w-1", "host").ok());
}

// Bug it must catch: what is removed from a directory that had not changed for long is missed.
TEST(Grants, ComeAndGoInADirectoryThatWasQuiet) {
  const TempDirectory directory;
  const std::string path = directory.path() + "/grants";
  const auto grants = *Grants::Open(path, RealClock());
  const auto quiet = [&] {
    const timespec past[2] = {{.tv_sec = 1'000'000'000, .tv_nsec = 0},
                              {.tv_sec = 1'000'000'000, .tv_nsec = 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), past, 0), 0);
    for (int i = 0; i < 3; ++i) grants->Refresh();
  };
  quiet();
  v1::Grant grant;
  grant.set_name("a");
  grant.set_role(v1::ROLE_ADMIN);
  grant.mutable_expire_time()->set_seconds(absl::ToUnixSeconds(RealClock().Now()) + 60);
  const NewGrant made = *MakeToken(grant, RealClock().Now());
  const std::string id = made.stored.grant.id(), file = path + "/" + id + ".json";
  ASSERT_TRUE(WriteSecret(file, ToJson(made.stored)).ok());
  grants->Refresh();
  EXPECT_TRUE(grants->Find(id));
  quiet();
  EXPECT_TRUE(grants->Find(id));
  ::unlink(file.c_str());
  grants->Refresh();
  EXPECT_FALSE(grants->Find(id));
}

TEST(Grants, WhatCannotBeReadGrantsNothing) {
  const TempDirectory directory;
  const std::string path = directory.path() + "/grants";
  const FakeClock clock;
  const auto grants = *Grants::Open(path, clock);
  v1::Grant grant;
  grant.set_name("a");
  grant.set_role(v1::ROLE_ADMIN);
  grant.mutable_expire_time()->set_seconds(absl::ToUnixSeconds(clock.Now()) + 60);
  const NewGrant made = *MakeToken(grant, clock.Now());
  const std::string id = made.stored.grant.id(), file = path + "/" + id + ".json";
  const auto found_after = [&](const std::string& text, mode_t mode) {
    ::unlink(file.c_str());
    grants->Refresh();
    EXPECT_FALSE(grants->Find(id));
    EXPECT_TRUE(WriteFileAtomic(file, text).ok());
    ::chmod(file.c_str(), mode);
    const auto fresh = *Grants::Open(path, clock);
    return fresh->Find(id).has_value();
  };
  const std::string good = ToJson(made.stored);
  EXPECT_TRUE(found_after(good, 0600));
  EXPECT_FALSE(found_after(good, 0640)) << "others may have put it there";
  EXPECT_FALSE(found_after("", 0600));
  EXPECT_FALSE(found_after("{}", 0600));
  StoredGrant open = made.stored;
  open.secret_hash.clear();
  EXPECT_FALSE(found_after(ToJson(open), 0600)) << "a grant that any secret opens";
  StoredGrant renamed = made.stored;
  renamed.grant.set_id("another1");
  EXPECT_FALSE(found_after(ToJson(renamed), 0600));
}

}  // namespace
}  // namespace trainyard::controller
