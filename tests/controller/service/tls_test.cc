// Proves that over a network nobody reaches a handler without a proof of who that is, and nobody
// who has one is sent away, whatever is renewed meanwhile (docs/reliability.md, S2).

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <prometheus/text_serializer.h>

#include <atomic>
#include <thread>

#include "absl/strings/str_split.h"
#include "common/files.h"
#include "controller/access/methods.h"
#include "security/controller_proof.h"
#include "security/secret_file.h"
#include "security/tokens.h"
#include "tests/controller/testing/moved_clock.h"
#include "tests/controller/testing/tls_fixture.h"
#include "trainyard/v1/cluster.grpc.pb.h"

namespace trainyard::controller {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class TlsTest : public TlsFixture {
 protected:
  Authority Other() const {
    const std::string directory = directory_.path() + "/other";
    EXPECT_TRUE(Authority::Init(directory, {"127.0.0.1"}, absl::Now()).ok());
    return *Authority::Open(directory, absl::Now());
  }
  // The calls that handlers have answered.
  std::vector<std::string> Handled() const {
    const std::string page = prometheus::TextSerializer().Serialize(server_->registry()->Collect());
    std::vector<std::string> lines = absl::StrSplit(page, '\n');
    std::erase_if(lines, [](const std::string& line) {
      return !line.starts_with("grpc_server_handled_total{");
    });
    return lines;
  }
  // Whether a TLS client that speaks no newer version gets in.
  bool Shakes(int newest_version) const {
    SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_security_level(context, 0);
    SSL_CTX_set_min_proto_version(context, TLS1_VERSION);
    SSL_CTX_set_max_proto_version(context, newest_version);
    BIO* const connection = BIO_new_ssl_connect(context);
    SSL* tls = nullptr;
    BIO_get_ssl(connection, &tls);
    const unsigned char alpn[] = {2, 'h', '2'};
    SSL_set_alpn_protos(tls, alpn, sizeof(alpn));
    BIO_set_conn_hostname(connection, Address().c_str());
    const bool shaken = BIO_do_handshake(connection) == 1;
    BIO_free_all(connection);
    SSL_CTX_free(context);
    ERR_clear_error();
    return shaken;
  }
};

TEST_F(TlsTest, NobodyReachesAHandlerWithoutProof) {
  Credential worker;
  ASSERT_TRUE(Join(Token(v1::ROLE_JOINER), "w-1", worker).ok());
  ASSERT_EQ(List(worker).error_code(), grpc::PERMISSION_DENIED) << "a worker is nobody else";
  Credential revoked;
  ASSERT_TRUE(Join(Token(v1::ROLE_JOINER), "w-2", revoked).ok());
  WorkerName name;
  ASSERT_TRUE(ParseUri(ReadCertificate(revoked.identity.certificate_pem)->uris.at(0), name));
  ASSERT_EQ(::unlink((GrantsDirectory(State()) + "/" + name.grant_id + ".json").c_str()), 0);
  const std::string good = ReadCertificate(worker.identity.certificate_pem)->uris.at(0);
  CertificateFacts expired = WorkerFacts("w-1", "x"), early = expired, as_server = expired,
                   reader = expired, two = expired;
  expired.uris = early.uris = as_server.uris = {good};
  expired.not_before = absl::Now() - absl::Hours(2);
  expired.not_after = absl::Now() - absl::Hours(1);
  early.not_before = absl::Now() + absl::Minutes(30);
  as_server.client = false;
  as_server.server = true;
  reader.uris = {"trainyard://reader/prometheus"};
  two.uris = {good, good};
  Credential both = worker;
  both.token = Token(v1::ROLE_ADMIN);
  Credential plaintext;
  plaintext.token = both.token;
  CertificateFacts stolen = WorkerFacts("w-9", "x");
  stolen.uris = {ToUri({"w-9", good.substr(good.find('#') + 1)})};
  struct Peer {
    const char* who;
    Credential credential;
    grpc::StatusCode answer = grpc::UNAUTHENTICATED;  // UNAVAILABLE: TLS comes to nothing.
  };
  const std::vector<Peer> peers = {
      {"plaintext", plaintext, grpc::UNAVAILABLE},
      {"nothing", With("")},
      {"an unknown token", With(trainyard::NewToken()->text)},
      {"another authority's certificate", Signed(Other(), WorkerFacts("w-1", "x")),
       grpc::UNAVAILABLE},
      {"another authority's with a good name",
       [&] {
         CertificateFacts facts = WorkerFacts("w-1", "x");
         facts.uris = {good};
         return Signed(Other(), facts);
       }(),
       grpc::UNAVAILABLE},
      {"an expired certificate", Signed(Own(), expired), grpc::UNAVAILABLE},
      {"one that does not hold yet", Signed(Own(), early), grpc::UNAVAILABLE},
      {"a server's", Signed(Own(), as_server), grpc::UNAVAILABLE},
      {"a reader's", Signed(Own(), reader)},
      {"a made-up grant", Signed(Own(), WorkerFacts("w-1", "nogrant1"))},
      {"another worker's grant", Signed(Own(), stolen)},
      {"two names", Signed(Own(), two)},
      {"a revoked worker's", revoked},
      {"a certificate and a token", both},
  };
  // The revocation above counts by now.
  Until([&] { return List(revoked).error_code() == grpc::UNAUTHENTICATED; });
  const std::vector<std::string> before = Handled();
  ASSERT_FALSE(before.empty());
  const Methods methods;
  for (const auto& [path, access] : methods.all()) {
    for (const auto& [who, credential, answer] : peers) {
      const grpc::Status status = Call(path, credential);
      EXPECT_EQ(status.error_code(), answer)
          << path << " with " << who << ": " << status.error_message();
      EXPECT_THAT(status.error_message(), Not(HasSubstr(both.token)));
    }
  }
  EXPECT_EQ(Handled(), before) << "a handler was reached";
  EXPECT_TRUE(List(With(both.token)).ok());
}

TEST_F(TlsTest, OldVersionsAreRefused) {
  EXPECT_FALSE(Shakes(TLS1_VERSION));
  EXPECT_FALSE(Shakes(TLS1_1_VERSION));
  EXPECT_TRUE(Shakes(TLS1_2_VERSION));
  EXPECT_TRUE(Shakes(TLS1_3_VERSION));
}

TEST_F(TlsTest, ClientsBelieveNoOtherController) {
  const std::string token = Token(v1::ROLE_VIEWER);
  Credential believes_another = With(token);
  believes_another.authorities = Other().certificate();
  EXPECT_EQ(List(believes_another).error_code(), grpc::UNAVAILABLE);
  // The right one under another name.
  grpc::ClientContext context;
  SetDeadline(context, absl::Seconds(2));
  v1::ListJobsResponse response;
  const auto stub = v1::JobService::NewStub(
      Dial(absl::StrCat("localhost:", port_), With(token), grpc::ChannelArguments()));
  EXPECT_EQ(stub->ListJobs(&context, {}, &response).error_code(), grpc::UNAVAILABLE);
  EXPECT_TRUE(List(With(token)).ok());
}

TEST_F(TlsTest, TheAuthorityIsFetchedByItsFingerprintAlone) {
  const auto address = *ParseAddress(Address());
  EXPECT_EQ(*FetchAuthority(address, Own().fingerprint(), absl::Seconds(20)), Own().certificate());
  const auto other = FetchAuthority(address, Other().fingerprint(), absl::Seconds(20));
  EXPECT_TRUE(absl::IsFailedPrecondition(other.status())) << other.status();
  server_.reset();
  const auto gone = FetchAuthority(address, Own().fingerprint(), absl::Seconds(20));
  EXPECT_TRUE(absl::IsUnavailable(gone.status())) << gone.status();
  EXPECT_THAT(std::string(gone.status().message()), EndsWith(": Connection refused"));
  const auto nameless =
      FetchAuthority(*ParseAddress("no..name:7070"), Own().fingerprint(), absl::Seconds(20));
  EXPECT_TRUE(absl::IsUnavailable(nameless.status())) << nameless.status();
  EXPECT_THAT(std::string(nameless.status().message()), HasSubstr("Name or service not known"));
}

// Each call on a connection of its own, while the controller's certificate is replaced.
TEST_F(TlsTest, ANewCertificateCostsNoCall) {
  std::atomic<bool> done = false;
  std::atomic<int> calls = 0, failed = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&, credential = With(Token(v1::ROLE_OPERATOR))] {
      while (!done) {
        failed += !List(credential).ok();
        ++calls;
        absl::SleepFor(absl::Milliseconds(20));  // No more often than a token may.
      }
    });
  }
  const auto serial = [&] {
    const auto shown =
        FetchAuthority(*ParseAddress(Address()), *Fingerprint(*ReadSecret(Own().server_path())),
                       absl::Seconds(20));
    return shown.ok();
  };
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(InitAuthority(State(), {"127.0.0.1"}, absl::Now()).ok());
    Until(serial);  // It is shown from now on.
  }
  done = true;
  for (std::thread& caller : callers) caller.join();
  EXPECT_GT(calls, 20);
  EXPECT_EQ(failed, 0) << "of " << calls;
}

TEST_F(TlsTest, WhatIsRevokedEndsOpenStreamsAndLaterCalls) {
  const std::string text = Token(v1::ROLE_OPERATOR);
  const auto jobs = v1::JobService::NewStub(Open(With(text)));
  v1::SubmitJobRequest submit;
  *submit.mutable_spec() = Spec();
  grpc::ClientContext submitting, watching, cancelling;
  v1::SubmitJobResponse submitted;
  const grpc::Status status = jobs->SubmitJob(&submitting, submit, &submitted);
  ASSERT_TRUE(status.ok()) << status.error_message();
  v1::WatchJobRequest watch;
  watch.set_job_id(submitted.job().id());
  SetDeadline(watching);
  const auto stream = jobs->WatchJob(&watching, watch);
  v1::WatchJobResponse response;
  ASSERT_TRUE(stream->Read(&response));
  const std::string admin = Token(v1::ROLE_ADMIN);
  v1::RevokeGrantRequest revoke;
  revoke.set_id(ParseToken(text)->id);
  grpc::ClientContext revoking;
  v1::RevokeGrantResponse revoked;
  const auto access = v1::AccessService::NewStub(Open(With(admin)));
  ASSERT_TRUE(access->RevokeGrant(&revoking, revoke, &revoked).ok());
  EXPECT_EQ(List(With(text)).error_code(), grpc::UNAUTHENTICATED);
  // The watch would have shown this.
  v1::CancelJobRequest cancel;
  cancel.set_job_id(submitted.job().id());
  v1::CancelJobResponse cancelled;
  ASSERT_TRUE(
      v1::JobService::NewStub(Open(With(admin)))->CancelJob(&cancelling, cancel, &cancelled).ok());
  while (stream->Read(&response)) {
    EXPECT_NE(response.job().state(), v1::JOB_STATE_CANCELLED);
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::UNAUTHENTICATED);
  grpc::ClientContext again;
  EXPECT_EQ(access->RevokeGrant(&again, revoke, &revoked).error_code(), grpc::NOT_FOUND);
}

class RevokedTest : public TlsFixture {
 protected:
  RevokedTest() : channel_(Open(With(Token(v1::ROLE_ADMIN)))) {}

  void Revoke(const std::string& grant) {
    v1::RevokeGrantRequest request;
    request.set_id(grant);
    grpc::ClientContext context;
    v1::RevokeGrantResponse response;
    const auto access = v1::AccessService::NewStub(channel_);
    EXPECT_TRUE(access->RevokeGrant(&context, request, &response).ok());
  }
  // A worker that has joined and registered, and says nothing further.
  struct Silent {
    std::string grant;
    std::unique_ptr<v1::WorkerService::Stub> stub;
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<v1::ConnectRequest, v1::ConnectResponse>> stream;
  };
  void Register(Silent& worker) {
    Credential credential;
    ASSERT_TRUE(Join(Token(v1::ROLE_JOINER), "w-1", credential).ok());
    WorkerName name;
    ASSERT_TRUE(ParseUri(ReadCertificate(credential.identity.certificate_pem)->uris.at(0), name));
    worker.grant = name.grant_id;
    worker.stub = v1::WorkerService::NewStub(Open(credential));
    SetDeadline(worker.context);
    worker.stream = worker.stub->Connect(&worker.context);
    v1::ConnectRequest request;
    auto* m = request.mutable_register_();
    m->set_protocol_version(2);
    m->set_worker_id("w-1");
    m->set_hostname("host");
    m->set_detach_seconds(600);
    worker.stream->Write(request);
    v1::ConnectResponse response;
    ASSERT_TRUE(worker.stream->Read(&response));
    ASSERT_TRUE(response.has_registered());
  }
  v1::WorkerState StateOfWorker() {
    grpc::ClientContext context;
    v1::ListWorkersResponse response;
    const auto cluster = v1::ClusterService::NewStub(channel_);
    EXPECT_TRUE(cluster->ListWorkers(&context, {}, &response).ok());
    return response.workers().empty() ? v1::WORKER_STATE_UNSPECIFIED : response.workers(0).state();
  }

  const std::shared_ptr<grpc::Channel> channel_;
};

// Bug it must catch: a stream on which nothing happens goes on, and with it its connection.
TEST_F(RevokedTest, ASilentStreamEnds) {
  const std::string text = Token(v1::ROLE_OPERATOR);
  const auto jobs = v1::JobService::NewStub(Open(With(text)));
  v1::SubmitJobRequest submit;
  *submit.mutable_spec() = Spec();
  grpc::ClientContext submitting, watching;
  v1::SubmitJobResponse submitted;
  ASSERT_TRUE(jobs->SubmitJob(&submitting, submit, &submitted).ok());
  v1::WatchJobRequest watch;
  watch.set_job_id(submitted.job().id());
  SetDeadline(watching);
  const auto stream = jobs->WatchJob(&watching, watch);
  v1::WatchJobResponse response;
  ASSERT_TRUE(stream->Read(&response));
  Revoke(ParseToken(text)->id);
  while (stream->Read(&response)) continue;  // What changed before that.
  EXPECT_EQ(stream->Finish().error_code(), grpc::UNAUTHENTICATED);
}

TEST_F(RevokedTest, ASilentWorkersStreamEnds) {
  Silent worker;
  ASSERT_NO_FATAL_FAILURE(Register(worker));
  Revoke(worker.grant);
  v1::ConnectResponse response;
  while (worker.stream->Read(&response)) continue;
  EXPECT_EQ(worker.stream->Finish().error_code(), grpc::UNAUTHENTICATED);
  Until([&] { return StateOfWorker() == v1::WORKER_STATE_LOST; });
}

// Bug it must catch: the jobs of a worker that is away when it is revoked wait ten minutes for it.
TEST_F(RevokedTest, AWorkerThatIsAwayIsLost) {
  Silent worker;
  ASSERT_NO_FATAL_FAILURE(Register(worker));
  worker.stream->WritesDone();
  v1::ConnectResponse response;
  while (worker.stream->Read(&response)) continue;
  EXPECT_TRUE(worker.stream->Finish().ok());
  EXPECT_EQ(StateOfWorker(), v1::WORKER_STATE_READY) << "its ranks may live on";
  Revoke(worker.grant);
  Until([&] { return StateOfWorker() == v1::WORKER_STATE_LOST; });
}

class LeapTest : public RevokedTest {
 protected:
  LeapTest() {
    server_.reset();
    clock_ = &moved_;
    StartServer();
  }
  // On an open connection, because a handshake reads another clock.
  bool KnowsAdmin() const {
    grpc::ClientContext context;
    v1::ListWorkersResponse response;
    const auto cluster = v1::ClusterService::NewStub(channel_);
    return cluster->ListWorkers(&context, {}, &response).error_code() != grpc::UNAUTHENTICATED;
  }
  ~LeapTest() override { server_.reset(); }  // Before its clock.

  MovedClock moved_;
};

// Bug it must catch: a clock that leaps by years for a second expels all workers, and their jobs
// start again.
TEST_F(LeapTest, AGrantEndsByATimeThatHasHeldAlone) {
  constexpr absl::Duration kYears = absl::Hours(24 * 365 * 3);
  Silent worker;
  ASSERT_NO_FATAL_FAILURE(Register(worker));
  moved_.Leap(kYears);
  EXPECT_TRUE(KnowsAdmin());
  absl::SleepFor(absl::Milliseconds(1500));  // The sweep of each second finds the worker's grant.
  EXPECT_EQ(StateOfWorker(), v1::WORKER_STATE_READY);
  moved_.Leap(-kYears);
  EXPECT_TRUE(KnowsAdmin());

  moved_.Leap(kYears);
  EXPECT_TRUE(KnowsAdmin());
  moved_.Pass(absl::Minutes(11));
  EXPECT_FALSE(KnowsAdmin()) << "it has expired, and this is known for ten minutes";
  v1::ConnectResponse response;
  while (worker.stream->Read(&response)) continue;
  EXPECT_EQ(worker.stream->Finish().error_code(), grpc::UNAUTHENTICATED);
  moved_.Leap(-kYears);
  EXPECT_FALSE(KnowsAdmin()) << "a clock that is set back lets nobody in for a moment";
}

}  // namespace
}  // namespace trainyard::controller
