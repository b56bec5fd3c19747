// Proves that whoever acts in one namespace neither sees nor stops the jobs of another, and that
// quotas hold.

#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/resource.h>

#include <deque>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "common/files.h"
#include "controller/service/connection_users.h"
#include "tests/controller/testing/server_fixture.h"
#include "trainyard/v1/access.grpc.pb.h"

namespace trainyard::controller {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// The API as the holder of one token has it.
class Tenant {
 public:
  Tenant(const std::string& address, const std::string& token) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto channel = Dial(address, {.token = token}, arguments);
    jobs_ = v1::JobService::NewStub(channel);
    cluster_ = v1::ClusterService::NewStub(channel);
  }

  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (v1::JobService::Stub::*method)(grpc::ClientContext*,
                                                                 const Request&, Response*),
                    const Request& request, Response& response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    return ((*jobs_).*method)(&context, request, &response);
  }
  grpc::Status Submit(const v1::JobSpec& spec, v1::Job& job, const std::string& request_id = "",
                      const std::string& name_space = "") {
    v1::SubmitJobRequest request;
    *request.mutable_spec() = spec;
    request.set_request_id(request_id);
    request.set_namespace_(name_space);
    v1::SubmitJobResponse response;
    const grpc::Status status = Call(&v1::JobService::Stub::SubmitJob, request, response);
    job = response.job();
    return status;
  }
  std::vector<std::string> List(const std::string& name_space = "") {
    v1::ListJobsRequest request;
    request.set_namespace_(name_space);
    v1::ListJobsResponse response;
    EXPECT_TRUE(Call(&v1::JobService::Stub::ListJobs, request, response).ok());
    std::vector<std::string> ids;
    for (const v1::Job& job : response.jobs()) ids.push_back(job.id());
    return ids;
  }
  v1::ListWorkersResponse Workers() {
    grpc::ClientContext context;
    v1::ListWorkersResponse response;
    EXPECT_TRUE(cluster_->ListWorkers(&context, v1::ListWorkersRequest(), &response).ok());
    return response;
  }
  // The first status of a stream about the job.
  template <typename Response, typename Request>
  grpc::Status Stream(std::unique_ptr<grpc::ClientReader<Response>> (v1::JobService::Stub::*method)(
                          grpc::ClientContext*, const Request&),
                      const std::string& job_id) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    Request request;
    request.set_job_id(job_id);
    const auto stream = ((*jobs_).*method)(&context, request);
    Response response;
    const bool any = stream->Read(&response);
    if (any) context.TryCancel();
    while (any && stream->Read(&response)) continue;
    const grpc::Status status = stream->Finish();
    return any ? grpc::Status::OK : status;
  }

 private:
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<v1::ClusterService::Stub> cluster_;
};

class TenantsTest : public ServerFixture {
 protected:
  Tenant Make(const std::string& name, v1::Role role, const std::string& name_space = "") {
    const auto stub = v1::AccessService::NewStub(channel_);
    v1::CreateTokenRequest request;
    request.set_name(name);
    request.set_role(role);
    request.set_namespace_(name_space);
    grpc::ClientContext context;
    v1::CreateTokenResponse response;
    const grpc::Status status = stub->CreateToken(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return Tenant(server_->address().ToString(), response.token());
  }
  // What every call about a job says to `tenant`.
  static std::vector<grpc::Status> AskAbout(Tenant& tenant, const std::string& job_id) {
    using Stub = v1::JobService::Stub;
    v1::GetJobRequest get;
    get.set_job_id(job_id);
    v1::GetJobResponse got;
    v1::ListEventsRequest events;
    events.set_job_id(job_id);
    v1::ListEventsResponse listed;
    v1::CancelJobRequest cancel;
    cancel.set_job_id(job_id);
    v1::CancelJobResponse cancelled;
    return {
        tenant.Call(&Stub::GetJob, get, got),     tenant.Call(&Stub::ListEvents, events, listed),
        tenant.Stream(&Stub::WatchJob, job_id),   tenant.Stream(&Stub::StreamSteps, job_id),
        tenant.Stream(&Stub::StreamLogs, job_id), tenant.Call(&Stub::CancelJob, cancel, cancelled)};
  }
};

TEST_F(TenantsTest, AnothersJobsAreNotThere) {
  Tenant alice = Make("alice", v1::ROLE_SUBMITTER, "research");
  Tenant bob = Make("bob", v1::ROLE_SUBMITTER, "product");
  v1::Job job;
  ASSERT_TRUE(alice.Submit(Spec(), job).ok());
  EXPECT_EQ(job.namespace_(), "research");
  EXPECT_EQ(job.submitter(), "alice");
  const std::string none = "j-0000000000";
  const auto of_alices = AskAbout(bob, job.id()), of_none = AskAbout(bob, none);
  for (size_t i = 0; i < of_alices.size(); ++i) {
    EXPECT_EQ(of_alices[i].error_code(), grpc::NOT_FOUND) << i;
    EXPECT_EQ(of_none[i].error_code(), grpc::NOT_FOUND) << i;
    std::string said = of_alices[i].error_message();
    if (const size_t at = said.find(job.id()); at != said.npos) said.replace(at, none.size(), none);
    EXPECT_EQ(said, of_none[i].error_message()) << "bob learns that there is one";
  }
  EXPECT_THAT(bob.List(), IsEmpty());
  EXPECT_THAT(bob.List("research"), IsEmpty());
  EXPECT_THAT(alice.List(), ::testing::ElementsAre(job.id()));
  EXPECT_THAT(alice.List("research"), ::testing::ElementsAre(job.id()));
  EXPECT_THAT(alice.List("product"), IsEmpty()) << "and not her own";
  EXPECT_EQ(Get(job.id()).state(), v1::JOB_STATE_QUEUED) << "bob has stopped it";
  Tenant operator_of_all = Make("olga", v1::ROLE_OPERATOR);
  EXPECT_THAT(operator_of_all.List("product"), IsEmpty());
  EXPECT_THAT(operator_of_all.List("research"), ::testing::ElementsAre(job.id()));
  for (const grpc::Status& status : AskAbout(operator_of_all, job.id())) {
    EXPECT_NE(status.error_code(), grpc::NOT_FOUND) << status.error_message();
  }
  AwaitState(job.id(), v1::JOB_STATE_CANCELLED);
  EXPECT_THAT(alice.List(), ::testing::ElementsAre(job.id())) << "of jobs that have ended, too";
  EXPECT_THAT(bob.List(), IsEmpty());
}

TEST_F(TenantsTest, NobodySubmitsToAnothersNamespace) {
  Tenant alice = Make("alice", v1::ROLE_SUBMITTER, "research");
  v1::Job job;
  EXPECT_EQ(alice.Submit(Spec(), job, "", "product").error_code(), grpc::PERMISSION_DENIED);
  EXPECT_TRUE(alice.Submit(Spec(), job, "", "research").ok());
  Tenant olga = Make("olga", v1::ROLE_OPERATOR);
  EXPECT_EQ(olga.Submit(Spec(), job, "", "a\nb").error_code(), grpc::INVALID_ARGUMENT);
  ASSERT_TRUE(olga.Submit(Spec(), job, "", "product").ok());
  EXPECT_EQ(job.namespace_(), "product");
  Tenant viewer = Make("vera", v1::ROLE_VIEWER, "research");
  EXPECT_EQ(viewer.Submit(Spec(), job).error_code(), grpc::PERMISSION_DENIED);
}

// Bug it must catch: who repeats another's request is answered with that one's job.
TEST_F(TenantsTest, RequestIdsAreTheNamespacesOwn) {
  Tenant alice = Make("alice", v1::ROLE_SUBMITTER, "research");
  Tenant bob = Make("bob", v1::ROLE_SUBMITTER, "product");
  v1::Job first, again, other;
  ASSERT_TRUE(alice.Submit(Spec(), first, "id-1").ok());
  ASSERT_TRUE(alice.Submit(Spec(), again, "id-1").ok());
  ASSERT_TRUE(bob.Submit(Spec(), other, "id-1").ok());
  EXPECT_EQ(again.id(), first.id());
  EXPECT_NE(other.id(), first.id());
  v1::Job crafted;
  ASSERT_TRUE(Submit(Spec(), &crafted, "research\nid-1").ok());
  EXPECT_NE(crafted.id(), first.id()) << "of the default namespace";
}

TEST_F(TenantsTest, AnothersJobIsNotNamed) {
  Tenant alice = Make("alice", v1::ROLE_SUBMITTER, "research");
  Tenant bob = Make("bob", v1::ROLE_SUBMITTER, "product");
  const auto worker = Worker("w-1", 1);
  v1::Job job, refused;
  ASSERT_TRUE(alice.Submit(Spec(1, "/shared/run"), job).ok());
  const grpc::Status status = bob.Submit(Spec(1, "/shared/run"), refused);
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_details(), Not(HasSubstr(job.id())));
  EXPECT_THAT(status.error_details(), HasSubstr("another namespace"));
  worker->AwaitStart();
  EXPECT_EQ(alice.Workers().workers(0).devices(0).job_id(), job.id());
  EXPECT_EQ(bob.Workers().workers(0).devices(0).job_id(), "another namespace");
}

TEST_F(TenantsTest, QuotasHoldAndChange) {
  const std::string file = directory_.path() + "/namespaces.yaml";
  ASSERT_TRUE(WriteFileAtomic(file, "research: {devices: 1}\ndefault: {}\n").ok());
  StopServer();
  StartServer([&](ServerOptions& options) { options.namespaces_file = file; });
  Tenant alice = Make("alice", v1::ROLE_SUBMITTER, "research");
  v1::Job first, second, third;
  EXPECT_EQ(alice.Submit(Spec(2), third).error_code(), grpc::INVALID_ARGUMENT) << "never fits";
  Tenant stranger = Make("sam", v1::ROLE_SUBMITTER, "unknown");
  EXPECT_EQ(stranger.Submit(Spec(1), third).error_code(), grpc::INVALID_ARGUMENT);
  const auto worker = Worker("w-1", 3);
  ASSERT_TRUE(alice.Submit(Spec(1), first).ok());
  EXPECT_EQ(worker->AwaitStart().job_id(), first.id());
  ASSERT_TRUE(alice.Submit(Spec(1), second).ok());
  const v1::Job waits = Await(second.id(), [](const v1::Job& job) {
    return absl::StrContains(job.state_reason(), "namespace");
  });
  EXPECT_EQ(waits.state_reason(),
            "needs 1 device, and the namespace research may hold 1: running jobs hold 1");
  ASSERT_TRUE(Submit(Spec(1), &third).ok());
  EXPECT_EQ(worker->AwaitStart().job_id(), third.id()) << "others do not wait for the quota";
  ASSERT_TRUE(WriteFileAtomic(file, "research: {devices: 2}\ndefault: {}\n").ok());
  EXPECT_EQ(worker->AwaitStart().job_id(), second.id());
}

TEST_F(TenantsTest, WhatAQuotaIsSpentOnIsSaid) {
  const std::string file = directory_.path() + "/namespaces.yaml";
  ASSERT_TRUE(WriteFileAtomic(file, "research: {devices: 3}\n").ok());
  StopServer();
  StartServer([&](ServerOptions& options) { options.namespaces_file = file; });
  Tenant alice = Make("alice", v1::ROLE_SUBMITTER, "research");
  const auto worker = Worker("w-1", 1);
  v1::Job runs, waits, over;
  ASSERT_TRUE(alice.Submit(Spec(1), runs).ok());
  worker->AwaitStart();
  ASSERT_TRUE(alice.Submit(Spec(2), waits).ok());
  ASSERT_TRUE(alice.Submit(Spec(2), over).ok());
  const auto says = [](const char* text) {
    return [text](const v1::Job& job) { return absl::StrContains(job.state_reason(), text); };
  };
  Await(over.id(), says("may hold 3: running jobs hold 1, jobs before this one wait for 2"));
  ASSERT_TRUE(WriteFileAtomic(file, "research: {devices: 1}\n").ok());
  Await(waits.id(), says("needs 2 devices, and the namespace research may hold 1: running"));
  ASSERT_TRUE(WriteFileAtomic(file, "other: {}\n").ok());
  Await(waits.id(), says("the namespace research does not exist any more"));
}

// Bug it must catch: a job that waited while its namespace's roots were narrowed runs in the old
// ones.
TEST_F(TenantsTest, RootsOfNowBindJobsThatWait) {
  const std::string file = directory_.path() + "/namespaces.yaml";
  const auto narrow = [&](const std::string& root) {
    ASSERT_TRUE(WriteFileAtomic(file, "research: {roots: [" + root + "]}\n").ok());
  };
  narrow("/data/old");
  StopServer();
  StartServer([&](ServerOptions& options) { options.namespaces_file = file; });
  Tenant alice = Make("alice", v1::ROLE_SUBMITTER, "research");
  v1::Job absolute, relative;
  ASSERT_TRUE(alice.Submit(Spec(1, "/data/old/run"), absolute).ok());
  ASSERT_TRUE(alice.Submit(Spec(1, "run-2"), relative).ok());
  StopServer();  // What a job's paths are is known after a restart, too.
  StartServer([&](ServerOptions& options) { options.namespaces_file = file; });
  narrow("/data/new");
  const v1::Job waits = Await(absolute.id(), [](const v1::Job& job) {
    return absl::StrContains(job.state_reason(), "/data/new");
  });
  EXPECT_EQ(waits.state(), v1::JOB_STATE_QUEUED);
  EXPECT_THAT(waits.state_reason(), HasSubstr("checkpoint.directory is '/data/old/run'"));
  const auto worker = Worker("w-1", 2);
  const v1::StartRanks start = worker->AwaitStart();
  EXPECT_EQ(start.job_id(), relative.id());
  EXPECT_THAT(start.roots(), ::testing::ElementsAre("/data/new"));
  narrow("/data");
  const v1::StartRanks after = worker->AwaitStart();
  EXPECT_EQ(after.job_id(), absolute.id());
  EXPECT_THAT(after.roots(), ::testing::ElementsAre("/data"));
}

// Bug it must catch: one viewer's idle streams are all that the controller has room for.
TEST_F(TenantsTest, NobodyHasMoreThanAShareOfTheStreams) {
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  const rlimit few{.rlim_cur = 300, .rlim_max = usual.rlim_max};
  StopServer();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  StartServer();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
  constexpr size_t kShare = (300 - 128) / 8;
  const std::string id = MustSubmit(Spec());
  const auto stub = v1::AccessService::NewStub(channel_);
  v1::CreateTokenRequest vera;
  vera.set_name("vera");
  vera.set_role(v1::ROLE_VIEWER);
  v1::CreateTokenResponse made;
  grpc::ClientContext making;
  ASSERT_TRUE(stub->CreateToken(&making, vera, &made).ok());
  const auto jobs = v1::JobService::NewStub(
      Dial(server_->address().ToString(), {.token = made.token()}, grpc::ChannelArguments()));
  struct Watch {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::WatchJobResponse>> stream;
  };
  v1::WatchJobRequest request;
  request.set_job_id(id);
  v1::WatchJobResponse response;
  const auto open = [&](Watch& watch) {
    SetDeadline(watch.context);
    watch.stream = jobs->WatchJob(&watch.context, request);
    return watch.stream->Read(&response);
  };
  std::deque<Watch> watches(kShare);
  for (Watch& watch : watches) ASSERT_TRUE(open(watch));
  Watch one_more;
  EXPECT_FALSE(open(one_more));
  const grpc::Status refused = one_more.stream->Finish();
  EXPECT_EQ(refused.error_code(), grpc::RESOURCE_EXHAUSTED) << refused.error_message();
  EXPECT_THAT(refused.error_message(), HasSubstr("vera"));
  EXPECT_THAT(refused.error_details(), HasSubstr("RetryInfo"));
  Tenant bob = Make("bob", v1::ROLE_VIEWER);
  EXPECT_TRUE(bob.Stream(&v1::JobService::Stub::WatchJob, id).ok()) << "another's share";
  // What ends makes room.
  watches.front().context.TryCancel();
  (void)watches.front().stream->Finish();
  bool again = false;
  for (int i = 0; i < 1000 && !again; ++i) {
    Watch watch;
    again = open(watch);
    watch.context.TryCancel();
    (void)watch.stream->Finish();
    if (!again) absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_TRUE(again);
  for (Watch& watch : watches) watch.context.TryCancel();
}

// Bug it must catch: one viewer's idle connections are all that the controller has room for.
TEST_F(TenantsTest, WhoHasMostConnectionsLosesThemToOthers) {
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  const rlimit few{.rlim_cur = 220, .rlim_max = usual.rlim_max};
  StopServer();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  StartServer();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
  constexpr int kRoom = 220 - 128;
  std::deque<Tenant> idle;
  const auto stub = v1::AccessService::NewStub(channel_);
  v1::CreateTokenRequest vera;
  vera.set_name("vera");
  vera.set_role(v1::ROLE_VIEWER);
  v1::CreateTokenResponse made;
  grpc::ClientContext making;
  ASSERT_TRUE(stub->CreateToken(&making, vera, &made).ok());
  for (int i = 0; i < kRoom - 1; ++i) {
    idle.emplace_back(server_->address().ToString(), made.token());
    EXPECT_THAT(idle.back().List(), IsEmpty());
  }
  // They would end by themselves after a minute.
  Tenant bob = Make("bob", v1::ROLE_VIEWER);
  EXPECT_THAT(bob.List(), IsEmpty());
  Tenant olga = Make("olga", v1::ROLE_OPERATOR);
  EXPECT_THAT(olga.List(), IsEmpty());
}

TEST(PeerOf, IsOneTextForOnePeer) {
  EXPECT_EQ(PeerOf("ipv4:10.0.0.7:51312"), "::ffff:10.0.0.7 51312");
  EXPECT_EQ(PeerOf("ipv6:%5B::ffff:10.0.0.7%5D:51312"), "::ffff:10.0.0.7 51312");
  EXPECT_EQ(PeerOf("ipv6:%5Bfe80::1%25eth0%5D:80"), "fe80::1 80");
  EXPECT_EQ(PeerOf("unix:/tmp/x"), "");
  sockaddr_storage address{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(address);
  v4.sin_family = AF_INET;
  v4.sin_port = htons(51312);
  v4.sin_addr.s_addr = htonl(0x0a000007);
  EXPECT_EQ(PeerOf(address), PeerOf("ipv4:10.0.0.7:51312"));
}

// Bug it must catch: each call that is read after its connection has ended is remembered for good.
TEST(ConnectionUsers, RememberOpenConnectionsAlone) {
  ConnectionUsers users;
  users.Used("a 1", "alice");
  EXPECT_EQ(users.Of("a 1"), "") << "never opened";
  users.Opened("a 1", 7);
  users.Used("a 1", "alice");
  users.Used("a 1", "bob");
  EXPECT_EQ(users.Of("a 1"), "alice") << "the first caller's";
  users.Closed("a 1", 7);
  users.Used("a 1", "alice");
  EXPECT_EQ(users.Of("a 1"), "") << "closed before the call was read";
  users.Opened("a 1", 8);
  EXPECT_EQ(users.Of("a 1"), "") << "another connection from the same place";
  users.Used("a 1", "bob");
  users.Closed("a 1", 7);
  EXPECT_EQ(users.Of("a 1"), "bob") << "that an earlier one is over is noticed late";
}

TEST_F(TenantsTest, WhoCallsWithoutEndIsHeldBackAlone) {
  Tenant alice = Make("alice", v1::ROLE_SUBMITTER, "research");
  Tenant bob = Make("bob", v1::ROLE_SUBMITTER, "product");
  v1::GetJobRequest request;
  v1::GetJobResponse response;
  int refused = 0;
  for (int i = 0; i < 1000 && refused < 10; ++i) {
    const grpc::Status status = alice.Call(&v1::JobService::Stub::GetJob, request, response);
    refused += status.error_code() == grpc::RESOURCE_EXHAUSTED;
  }
  EXPECT_EQ(refused, 10);
  EXPECT_THAT(bob.List(), IsEmpty());
}

}  // namespace
}  // namespace trainyard::controller
