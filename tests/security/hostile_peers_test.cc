// Proves that peers which only take up room do not keep a controller from its callers: those that
// open connections until its descriptors are out, those that never finish what they began to say,
// and those that send as much as they may.

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <iostream>
#include <thread>
#include <vector>

#include "tests/security/controller_process.h"

namespace trainyard::testing {
namespace {

constexpr absl::Duration kSoon = absl::Seconds(10);

// What a client of HTTP/2 says first: the preface, and an empty frame of settings.
constexpr absl::string_view kPreface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", 33);

class Peer {
 public:
  explicit Peer(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    CHECK(fd_ >= 0) << errno;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(uint16_t(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    // In progress is as good: the kernel queues the peer.
    (void)::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  }
  ~Peer() {
    if (fd_ >= 0) ::close(fd_);
  }
  Peer(Peer&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Peer& operator=(Peer&&) = delete;

  void Send(absl::string_view bytes) {
    (void)::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  bool CutOff() {
    char bytes[4096];
    ssize_t got = 0;
    while ((got = ::recv(fd_, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) continue;
    return got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }

 private:
  int fd_;
};

std::vector<Peer> Peers(int count, int port) {
  std::vector<Peer> peers;
  peers.reserve(size_t(count));
  for (int i = 0; i < count; ++i) peers.emplace_back(port);
  return peers;
}

// The test's own limit, not the controller's.
void AllowOpenFiles(rlim_t count) {
  rlimit limit{};
  CHECK(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = std::min(limit.rlim_max, std::max(limit.rlim_cur, count));
  CHECK(::setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= count) << limit.rlim_max;
}

TEST(HostilePeers, DescriptorsRunOutAndTheServiceIsBack) {
  AllowOpenFiles(2000);
  const ControllerProcess controller(256);
  const auto before = controller.Connect();
  ASSERT_TRUE(List(*before, kSoon).ok());
  for (int flood = 0; flood < 3; ++flood) {
    SCOPED_TRACE(flood);
    {
      const std::vector<Peer> peers = Peers(600, controller.port());
      EXPECT_TRUE(WaitUntil(
          [&] { return controller.log().find("not_accepting") != std::string::npos; }, kSoon));
      EXPECT_TRUE(List(*before, kSoon).ok()) << "who was there before is served";
      EXPECT_LT(controller.OpenFiles(), 256 - 32) << "some are left for the store, logs and pages";
    }
    const grpc::Status after = List(*controller.Connect(), kSoon);
    EXPECT_TRUE(after.ok()) << after.error_message() << "\n" << controller.log();
  }
  EXPECT_THAT(controller.log(), ::testing::HasSubstr("accepting_again"));
}

// A controller that this test starts may do what the test may.
bool MayRunFirst() {
  int refused = 0;
  std::thread([&] {
    sched_param priority{};
    priority.sched_priority = 1;
    refused = ::pthread_setschedparam(::pthread_self(), SCHED_FIFO, &priority);
  }).join();
  return refused == 0;
}

// Bug it must catch: on a busy machine, the guard waits for a processor while a flood has one.
TEST(HostilePeers, TheGuardRunsFirstWhereItMay) {
  const ControllerProcess controller(256);
  if (!MayRunFirst()) {
    EXPECT_EQ(controller.ThreadsThatRunFirst(), 0);
    return;
  }
  EXPECT_TRUE(WaitUntil([&] { return controller.ThreadsThatRunFirst() == 1; }));
}

TEST(HostilePeers, WhoDoesNotFinishItsHandshakeIsCutOff) {
  AllowOpenFiles(4000);
  const ControllerProcess controller(3000);
  // In turn: on a slow machine, the address owes for its first 50 before the last ones come. Those
  // are not let in.
  std::vector<Peer> silent, slow, idle;
  for (int i = 0; i < 500; ++i) {
    for (std::vector<Peer>* peers : {&silent, &slow, &idle}) peers->emplace_back(controller.port());
    idle.back().Send(kPreface);
  }
  const absl::Time begin = absl::Now();
  const auto all_cut = [](std::vector<Peer>& peers) {
    return std::all_of(peers.begin(), peers.end(), [](Peer& peer) { return peer.CutOff(); });
  };
  for (size_t second = 0; second < 9; ++second) {
    for (Peer& peer : slow) peer.Send(kPreface.substr(second, 1));
    EXPECT_TRUE(List(*controller.Connect(), kSoon).ok());
    absl::SleepFor(begin + absl::Seconds(second + 1) - absl::Now());
  }
  EXPECT_TRUE(WaitUntil([&] { return all_cut(silent) && all_cut(slow); }, absl::Seconds(20)));
  EXPECT_FALSE(all_cut(idle)) << "who has said that it speaks HTTP/2 may wait for its first call";
}

// Calls of one caller until `go_on` says no, each of which must be answered; the 99th percentile of
// how long one took.
absl::Duration Slowest(v1::JobService::Stub& stub, const std::function<bool()>& go_on) {
  std::vector<absl::Duration> took;
  do {
    const absl::Time begin = absl::Now();
    const grpc::Status status = List(stub, absl::Seconds(30));
    EXPECT_TRUE(status.ok()) << status.error_code() << " " << status.error_message();
    took.push_back(absl::Now() - begin);
    absl::SleepFor(absl::Milliseconds(2));
  } while (go_on());
  std::sort(took.begin(), took.end());
  return took[took.size() * 99 / 100];
}

// A thousand of the largest requests at once, on fifty connections: how they ended.
class Flood {
 public:
  explicit Flood(const ControllerProcess& controller) : calls_(1000), left_(calls_.size()) {
    largest_.mutable_spec()->set_name(std::string(1'000'000, 'x'));
    for (int i = 0; i < 50; ++i) stubs_.push_back(controller.Connect());
    for (size_t i = 0; i < calls_.size(); ++i) {
      calls_[i].context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(60)));
      stubs_[i % stubs_.size()]->async()->SubmitJob(
          &calls_[i].context, &largest_, &calls_[i].response, [&, i](const grpc::Status& status) {
            calls_[i].code = status.error_code();
            --left_;
          });
    }
  }
  ~Flood() {
    EXPECT_TRUE(WaitUntil([&] { return !arriving(); }));
  }
  bool arriving() const { return left_ > 0; }
  void ExpectRefused() const {
    for (const Call& call : calls_) {
      EXPECT_THAT(call.code, ::testing::AnyOf(grpc::INVALID_ARGUMENT, grpc::RESOURCE_EXHAUSTED,
                                              grpc::UNAVAILABLE));
    }
  }

 private:
  struct Call {
    grpc::ClientContext context;
    v1::SubmitJobResponse response;
    grpc::StatusCode code = grpc::OK;
  };

  v1::SubmitJobRequest largest_;
  std::vector<std::unique_ptr<v1::JobService::Stub>> stubs_;
  std::vector<Call> calls_;
  std::atomic<size_t> left_;
};

TEST(HostilePeers, TheLargestRequestsAtOnceLeaveRoomForOthers) {
  AllowOpenFiles(4000);
  const ControllerProcess controller(3000);
  const auto other = controller.Connect();
  const absl::Duration alone =
      Slowest(*other, [end = absl::Now() + absl::Seconds(1)] { return absl::Now() < end; });
  const int64_t before = controller.Memory();
  for (int round = 0; round < 3; ++round) {
    const Flood flood(controller);
    int64_t most = 0;
    const absl::Duration beside = Slowest(*other, [&] {
      most = std::max(most, controller.Memory());
      return flood.arriving();
    });
    flood.ExpectRefused();
    EXPECT_LE(most - before, 64 << 20);
    std::cout << "another caller's p99: " << beside << ", alone " << alone
              << "; memory: " << (most - before) / 1000 / 1000 << " MB more\n";
  }
}

v1::JobSpec TinySpec() {
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

// The bound on what requests hold is not one on how many peers there are.
TEST(HostilePeers, ThousandsWhoUseTheServiceAreServed) {
  AllowOpenFiles(4000);
  const ControllerProcess controller(4000);
  v1::SubmitJobRequest request;
  *request.mutable_spec() = TinySpec();
  v1::SubmitJobResponse job;
  grpc::ClientContext submit;
  const grpc::Status submitted = controller.Connect()->SubmitJob(&submit, request, &job);
  ASSERT_TRUE(submitted.ok()) << submitted.error_message();
  v1::WatchJobRequest watched;
  watched.set_job_id(job.job().id());
  struct Watcher {
    std::unique_ptr<v1::JobService::Stub> stub;
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::WatchJobResponse>> stream;
  };
  std::vector<Watcher> watchers(3000);
  v1::WatchJobResponse response;
  for (size_t i = 0; i < watchers.size(); ++i) {
    watchers[i].stub = controller.Connect();
    watchers[i].stream = watchers[i].stub->WatchJob(&watchers[i].context, watched);
    ASSERT_TRUE(watchers[i].stream->Read(&response))
        << "watcher " << i << ": " << watchers[i].stream->Finish().error_message();
  }
  grpc::ClientContext cancel;
  v1::CancelJobRequest cancelled;
  cancelled.set_job_id(job.job().id());
  v1::CancelJobResponse ended;
  ASSERT_TRUE(controller.Connect()->CancelJob(&cancel, cancelled, &ended).ok());
  // A watcher of the queued job may first hear why the job waits.
  for (Watcher& watcher : watchers) {
    do {
      ASSERT_TRUE(watcher.stream->Read(&response)) << watcher.stream->Finish().error_message();
    } while (response.job().state() == v1::JOB_STATE_QUEUED);
    EXPECT_EQ(response.job().state(), v1::JOB_STATE_CANCELLED);
  }
}

TEST(HostilePeers, BytesThatAreNoMessageAreTheirSendersFault) {
  const ControllerProcess controller(1000);
  grpc::GenericStub stub(controller.Channel());
  for (const char* method : {"SubmitJob", "GetJob", "ListJobs", "CancelJob", "WatchJob"}) {
    SCOPED_TRACE(method);
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kSoon));
    const grpc::Slice garbage("\xff\xff\xff\xff");
    const grpc::ByteBuffer request(&garbage, 1);
    grpc::ByteBuffer response;
    std::promise<grpc::Status> ended;
    stub.UnaryCall(&context, absl::StrCat("/trainyard.v1.JobService/", method), {}, &request,
                   &response, [&](const grpc::Status& status) { ended.set_value(status); });
    const grpc::Status status = ended.get_future().get();
    EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT) << status.error_message();
    EXPECT_THAT(status.error_message(), ::testing::HasSubstr("not a message"));
  }
}

}  // namespace
}  // namespace trainyard::testing
