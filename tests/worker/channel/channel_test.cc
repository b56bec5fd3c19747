// Proves that nothing that must not be lost is lost while either end restarts, that rendezvous and
// stop reach their addressee whichever side comes first, and that strangers are refused. Real
// sockets; every wait is for a condition.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "common/file_descriptor.h"
#include "common/files.h"
#include "worker/channel/client.h"
#include "worker/channel/line_socket.h"
#include "worker/channel/server.h"
#include "worker/channel/unsent.h"

namespace trainyard::channel {
namespace {

using ::testing::ElementsAre;

constexpr absl::Duration kPatience = absl::Seconds(20);

// What a daemon has received; waits for conditions on it.
class Inbox {
 public:
  ChannelServer::Callbacks Callbacks() {
    return {
        .hello = [this](const Hello&) { Change([this] { ++hellos; }); },
        .ready = [this](const Ready&) { Change([this] { ++readies; }); },
        .step = [this](const Step& s) { Change([&] { steps.push_back(s.step); }); },
        .checkpoint = [this](const Checkpoint& c) { Change([&] { paths.push_back(c.path); }); },
        .set = [this](const Set& s) { Change([&] { sets.push_back(s.key + "=" + s.value); }); },
        .get = [this](const Get& g) { Change([&] { gets.push_back(g.key); }); },
        .progress = [this](const Progress& p) { Change([&] { beats.push_back(p.count); }); },
        .disconnected = [this] { Change([this] { ++disconnects; }); },
    };
  }
  template <typename Condition>
  bool Wait(Condition condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, absl::ToChronoSeconds(kPatience), condition);
  }

  int hellos = 0, readies = 0, disconnects = 0;
  std::vector<uint64_t> steps, beats;
  std::vector<std::string> paths, sets, gets;

 private:
  template <typename F>
  void Change(F change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
};

class ChannelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = ::testing::TempDir() + "/channel_" +
                 ::testing::UnitTest::GetInstance()->current_test_info()->name();
    ASSERT_TRUE(RemoveTree(directory_).ok());
    ASSERT_TRUE(MakeDirectories(directory_).ok());
    path_ = directory_ + "/socket";
  }
  std::unique_ptr<ChannelServer> Serve(Inbox& inbox) {
    auto server = ChannelServer::Create({path_, "j-1", 3, 0}, inbox.Callbacks());
    EXPECT_TRUE(server.ok()) << server.status();
    return *std::move(server);
  }
  std::unique_ptr<ChannelClient> Connect() {
    return ChannelClient::Create(
        {.path = path_, .hello = {"j-1", 3, 0, 42}, .retry = absl::Milliseconds(5)});
  }
  std::string directory_, path_;
};

Step StepNumber(uint64_t n) {
  Step step;
  step.step = n;
  return step;
}

TEST_F(ChannelTest, DeliversInOrderAndAcknowledges) {
  Inbox inbox;
  const auto server = Serve(inbox);
  const auto client = Connect();
  client->SendReady({});
  for (uint64_t i = 1; i <= 1000; ++i) client->SendStep(StepNumber(i));
  client->SendCheckpoint({1000, "/ckpt/step-1000", 7, 0.5});
  ASSERT_TRUE(client->Flush(kPatience).ok());
  EXPECT_EQ(inbox.readies, 1);
  ASSERT_EQ(inbox.steps.size(), 1000u);
  EXPECT_TRUE(std::is_sorted(inbox.steps.begin(), inbox.steps.end()));
  EXPECT_THAT(inbox.paths, ::testing::ElementsAre("/ckpt/step-1000"));
  EXPECT_EQ(client->disconnected_for(), absl::ZeroDuration());
}

TEST_F(ChannelTest, MessagesSentWithoutADaemonReachTheNextOne) {
  const auto client = Connect();
  client->SendReady({});
  client->SendStep(StepNumber(1));
  EXPECT_FALSE(client->Flush(absl::Milliseconds(20)).ok());
  Inbox inbox;
  const auto server = Serve(inbox);
  ASSERT_TRUE(client->Flush(kPatience).ok());
  EXPECT_EQ(inbox.readies, 1);
  EXPECT_THAT(inbox.steps, ::testing::ElementsAre(1));
}

TEST_F(ChannelTest, NothingIsLostWhileTheDaemonRestartsManyTimes) {
  constexpr uint64_t kSteps = 2000;
  const auto client = Connect();
  std::jthread sender([&] {
    for (uint64_t i = 1; i <= kSteps; ++i) {
      client->SendStep(StepNumber(i));
      std::this_thread::yield();
    }
  });
  std::vector<uint64_t> seen;
  while (seen.empty() || seen.back() < kSteps) {
    Inbox inbox;
    auto server = Serve(inbox);
    // Only what arrives at the inbox ends the wait: it hears nothing of the sender.
    ASSERT_TRUE(inbox.Wait([&] {
      return inbox.steps.size() > 50 || (!inbox.steps.empty() && inbox.steps.back() == kSteps);
    }));
    server.reset();
    // At least once: a later daemon may see again what an earlier one did not acknowledge.
    for (uint64_t step : inbox.steps) {
      if (seen.empty() || step > seen.back()) {
        EXPECT_EQ(step, seen.size() + 1) << "a step is missing";
        seen.push_back(step);
      }
    }
  }
  EXPECT_EQ(seen.size(), kSteps);
}

TEST_F(ChannelTest, ConnectionThatBreaksRepeatsNothingToTheSameDaemon) {
  Inbox inbox;
  const auto server = Serve(inbox);
  {
    const auto client = Connect();
    client->SendStep(StepNumber(1));
    ASSERT_TRUE(client->Flush(kPatience).ok());
  }
  ASSERT_TRUE(inbox.Wait([&] { return inbox.disconnects == 1; }));
  // The same process again, that has not seen the acknowledgement of its first message.
  const auto client = Connect();
  client->SendStep(StepNumber(1));
  client->SendStep(StepNumber(2));
  ASSERT_TRUE(client->Flush(kPatience).ok());
  EXPECT_THAT(inbox.steps, ::testing::ElementsAre(1, 2));
}

// Bug it must catch: a trainer that has reconnected counts as gone once its old connection ends.
TEST_F(ChannelTest, TheEndOfAConnectionThatWasReplacedIsNoDisconnect) {
  Inbox inbox;
  const auto server = Serve(inbox);
  const auto greet = [&] {
    auto socket = std::make_unique<LineSocket>(ConnectUnix(path_).value());
    socket->Queue(Encode({Hello{"j-1", 3, 0, 42}}));
    EXPECT_TRUE(socket->Write().ok());
    return socket;
  };
  const auto old = greet();
  ASSERT_TRUE(inbox.Wait([&] { return inbox.hellos == 1; }));
  auto current = greet();
  ASSERT_TRUE(inbox.Wait([&] { return inbox.hellos == 2; }));
  current->Queue(Encode({StepNumber(1)}));  // The server forgets the old one before it reads this.
  ASSERT_TRUE(current->Write().ok());
  ASSERT_TRUE(inbox.Wait([&] { return inbox.steps.size() == 1; }));
  EXPECT_EQ(inbox.disconnects, 0);
  current.reset();
  ASSERT_TRUE(inbox.Wait([&] { return inbox.disconnects == 1; }));
}

TEST_F(ChannelTest, BoundDropsOldestStepsButNeverCheckpoints) {
  auto client = ChannelClient::Create(
      {.path = path_, .hello = {"j-1", 3, 0, 42}, .max_kept = 4, .retry = absl::Milliseconds(5)});
  client->SendCheckpoint({1, "/a", 0, 0});
  for (uint64_t i = 1; i <= 100; ++i) client->SendStep(StepNumber(i));
  client->SendCheckpoint({2, "/b", 0, 0});
  Inbox inbox;
  const auto server = Serve(inbox);
  ASSERT_TRUE(client->Flush(kPatience).ok());
  EXPECT_THAT(inbox.paths, ::testing::ElementsAre("/a", "/b"));
  EXPECT_THAT(inbox.steps, ::testing::ElementsAre(99, 100));
}

TEST_F(ChannelTest, HeartbeatsSayHowFarTheWorkHasCome) {
  Inbox first, second;
  auto server = Serve(first);
  std::atomic<uint64_t> count = 7;
  const auto client =
      ChannelClient::Create({.path = path_,
                             .hello = {"j-1", 3, 0, 42},
                             .retry = absl::Milliseconds(5),
                             .progress = [&] { return Progress{.phase = "step", .count = count}; },
                             .beat = absl::Milliseconds(1)});
  // The first with the greeting; and on, though nothing is done.
  ASSERT_TRUE(first.Wait([&] { return first.beats.size() >= 3; }));
  EXPECT_EQ(first.beats.back(), 7u);
  count = 8;
  ASSERT_TRUE(first.Wait([&] { return first.beats.back() == 8; }));
  server.reset();
  server = Serve(second);
  EXPECT_TRUE(second.Wait([&] { return !second.beats.empty(); }));
}

TEST_F(ChannelTest, GetIsAnsweredOnceSomebodySetTheKeyAndSurvivesARestart) {
  Inbox first, second;
  auto server = Serve(first);
  const auto client = Connect();
  absl::StatusOr<std::string> value;
  std::thread getter([&] { value = client->Get("gloo/1", kPatience); });
  ASSERT_TRUE(first.Wait([&] { return first.gets.size() == 1; }));
  server.reset();
  server = Serve(second);
  ASSERT_TRUE(second.Wait([&] { return second.gets.size() == 1; }));
  server->SendValue("gloo/1", std::string("a\0b", 3));
  getter.join();
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(*value, std::string("a\0b", 3));
}

TEST_F(ChannelTest, GetPastItsDeadlineNamesTheKey) {
  Inbox inbox;
  const auto server = Serve(inbox);
  const auto client = Connect();
  const absl::Status status = client->Get("gloo/7", absl::Milliseconds(10)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("gloo/7"));
}

TEST_F(ChannelTest, StopReachesATrainerThatConnectsLaterAndEndsItsGet) {
  Inbox inbox;
  const auto server = Serve(inbox);
  server->SendStop();
  std::atomic<int> stops = 0;
  const auto client = ChannelClient::Create(
      {.path = path_, .hello = {"j-1", 3, 0, 42}, .retry = absl::Milliseconds(5), .on_stop = [&] {
         ++stops;
       }});
  EXPECT_EQ(client->Get("k", kPatience).status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(client->stop_requested());
  server->SendStop();
  client->SendReady({});
  ASSERT_TRUE(client->Flush(kPatience).ok());
  EXPECT_EQ(stops, 1);
}

TEST_F(ChannelTest, TrainerOfAnotherEpochIsRefused) {
  Inbox inbox;
  const auto server = Serve(inbox);
  const auto stranger =
      ChannelClient::Create({.path = path_, .hello = {"j-1", 2, 0, 1}, .retry = kPatience});
  stranger->SendCheckpoint({9, "/stale", 0, 0});
  const auto client = Connect();
  client->SendReady({});
  ASSERT_TRUE(client->Flush(kPatience).ok());
  EXPECT_EQ(inbox.hellos, 1);
  EXPECT_THAT(inbox.paths, ::testing::IsEmpty());
}

// Bug it must catch: who knows the path speaks for the trainer, or takes all connections there are.
TEST_F(ChannelTest, AProcessThatMayNotBeTheTrainerHoldsNobodyUp) {
  Inbox inbox;
  std::atomic<pid_t> trainer = ::getpid() + 1;
  auto server = ChannelServer::Create(
      {path_, "j-1", 3, 0, [&](pid_t process) { return process == trainer; }}, inbox.Callbacks());
  ASSERT_TRUE(server.ok()) << server.status();
  std::vector<LineSocket> strangers;
  for (int i = 0; i < 6; ++i) {
    absl::StatusOr<FileDescriptor> fd = ConnectUnix(path_);
    ASSERT_TRUE(fd.ok()) << fd.status();
    LineSocket& socket = strangers.emplace_back(*std::move(fd));
    socket.Queue(Encode({Hello{"j-1", 3, 0, 42}}));
    std::vector<std::string> lines;
    while (socket.Write().ok() && socket.Read(lines).ok()) std::this_thread::yield();
  }
  EXPECT_EQ(inbox.hellos, 0);
  trainer = ::getpid();
  const auto client = Connect();
  client->SendReady({});
  ASSERT_TRUE(client->Flush(kPatience).ok());
  EXPECT_EQ(inbox.hellos, 1);
}

TEST_F(ChannelTest, EndlessLineAndMissingHelloAreCutOff) {
  Inbox inbox;
  const auto server = Serve(inbox);
  for (const std::string& text : {std::string(2 * kMaxLineBytes, 'x'), Encode({Ready{}}) + "\n"}) {
    absl::StatusOr<FileDescriptor> fd = ConnectUnix(path_);
    ASSERT_TRUE(fd.ok());
    LineSocket socket(*std::move(fd));
    socket.Queue(text);
    std::vector<std::string> lines;
    while (socket.Write().ok() && socket.Read(lines).ok()) std::this_thread::yield();
  }
  EXPECT_EQ(inbox.readies, 0);
}

// Takes every descriptor that this process may have.
class AllDescriptors {
 public:
  AllDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few = before_;
    few.rlim_cur = 64;
    ::setrlimit(RLIMIT_NOFILE, &few);
    for (;;) {
      FileDescriptor fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (fd.get() < 0) return;
      taken_.push_back(std::move(fd));
    }
  }
  ~AllDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  void GiveBackOne() { taken_.pop_back(); }

 private:
  rlimit before_ = {};
  std::vector<FileDescriptor> taken_;
};

// Bug it must catch: a server that can take no connection and so is woken by it for ever.
TEST_F(ChannelTest, WithoutDescriptorsTrainersAreTurnedAwayAndComeAgain) {
  Inbox inbox;
  const auto server = Serve(inbox);
  {
    AllDescriptors all;
    all.GiveBackOne();
    const auto turned_away = ConnectUnix(path_);  // Takes it.
    ASSERT_TRUE(turned_away.ok()) << turned_away.status();
    pollfd closed = {turned_away->get(), POLLIN, 0};
    EXPECT_EQ(::poll(&closed, 1, int(absl::ToInt64Milliseconds(kPatience))), 1);
  }
  const auto client = Connect();
  client->SendReady({});
  EXPECT_TRUE(client->Flush(kPatience).ok());
}

TEST_F(ChannelTest, PathMayBeLongerThanASocketAddress) {
  directory_ += "/" + std::string(120, 'd');
  ASSERT_TRUE(MakeDirectories(directory_).ok());
  path_ = directory_ + "/socket";
  Inbox inbox;
  const auto server = Serve(inbox);
  const auto client = Connect();
  client->SendReady({});
  EXPECT_TRUE(client->Flush(kPatience).ok());
}

class UnsentTest : public ChannelTest {
 protected:
  std::unique_ptr<ChannelClient> ConnectKeeping(absl::Duration beat = absl::Milliseconds(20)) {
    return ChannelClient::Create({.path = path_,
                                  .hello = {"j-1", 3, 0, 42},
                                  .unsent = Unsent(),
                                  .retry = absl::Milliseconds(5),
                                  .progress = [] { return Progress{.phase = "step"}; },
                                  .beat = beat});
  }
  static Step At(uint64_t number) {
    Step step;
    step.step = number;
    return step;
  }
  // Polls: neither a file nor a raw socket of a test has a condition to wait on.
  template <typename Condition>
  static bool Await(Condition condition) {
    const auto until = std::chrono::steady_clock::now() + absl::ToChronoSeconds(kPatience);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > until) return false;
      ::poll(nullptr, 0, 5);
    }
    return true;
  }
  std::string Unsent() const { return directory_ + "/" + kUnsentName; }
  std::vector<uint64_t> StepsInFile() const {
    std::vector<uint64_t> steps;
    UnsentReader reader(Unsent());
    const auto take = [&](const Message& message) {
      if (const Step* step = std::get_if<Step>(&message)) steps.push_back(step->step);
    };
    while (reader.Next(take).value_or(false)) continue;
    return steps;
  }
};

// Catches a trainer that takes along what it did while its daemon was being upgraded.
TEST_F(UnsentTest, WhatATrainerSaysWithoutADaemonOutlivesIt) {
  auto client = ConnectKeeping();
  for (const uint64_t step : {1, 2, 3}) client->SendStep(At(step));
  EXPECT_THAT(StepsInFile(), ElementsAre(1, 2, 3)) << "at once, for it may be killed";
}

TEST_F(UnsentTest, TheFileGoesOnceADaemonHasTakenAll) {
  auto client = ConnectKeeping();
  client->SendStep(At(1));
  ASSERT_TRUE(Exists(Unsent()));
  Inbox inbox;
  const auto server = Serve(inbox);
  client->SendStep(At(2));
  ASSERT_TRUE(client->Flush(kPatience).ok());
  EXPECT_FALSE(Exists(Unsent()));
}

// Bug it must catch: a file that lines were acknowledged behind went on with later lines, and the
// daemon took those between for lost.
TEST_F(UnsentTest, WhatWasAcknowledgedBesideTheFileIsNoGap) {
  const auto client = ConnectKeeping(absl::Hours(1));  // No beat adds to the file.
  client->SendStep(At(1));
  ASSERT_THAT(StepsInFile(), ElementsAre(1));
  auto listener = ListenUnix(path_);
  ASSERT_TRUE(listener.ok()) << listener.status();
  std::optional<LineSocket> daemon;
  ASSERT_TRUE(Await([&] {
    FileDescriptor fd(::accept4(listener->get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.get() >= 0) daemon.emplace(std::move(fd));
    return daemon.has_value();
  }));
  std::vector<std::string> lines;
  const auto has_read = [&](uint64_t step) {
    return daemon->Read(lines).ok() && std::any_of(lines.begin(), lines.end(), [&](const auto& l) {
             const auto envelope = Decode(l);
             const Step* read = envelope.ok() ? std::get_if<Step>(&envelope->message) : nullptr;
             return read != nullptr && read->step == step;
           });
  };
  // One step always waits for its acknowledgement.
  for (uint64_t step = 2; step <= 4; ++step) {
    client->SendStep(At(step));
    ASSERT_TRUE(Await([&] { return has_read(step); }));
    daemon->Queue(Encode({Ack{step - 1}}));
    ASSERT_TRUE(daemon->Write().ok());
  }
  *listener = FileDescriptor();
  daemon.reset();
  ASSERT_TRUE(Await([&] { return StepsInFile().size() > 0 && StepsInFile().back() == 4; }));
  UnsentReader reader(Unsent());
  while (reader.Next([](const Message&) {}).value_or(false)) continue;
  EXPECT_EQ(reader.lost().missing, 0u);
}

// A daemon that stands still takes connections and lines, and acknowledges nothing.
TEST_F(UnsentTest, WhatADaemonLeavesUnansweredIsKeptToo) {
  const auto listener = ListenUnix(path_);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto client = ConnectKeeping();
  client->SendStep(At(1));
  EXPECT_TRUE(Await([&] { return StepsInFile() == std::vector<uint64_t>{1}; }));
}

// Bug it must catch: a step that a daemon took along when it died, and a trainer that is killed
// before it says anything more.
TEST_F(UnsentTest, WhatADaemonThatDiesHasNotAnsweredIsKeptAtOnce) {
  auto listener = ListenUnix(path_);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto client = ConnectKeeping(absl::Hours(1));  // The next beat must not be what keeps it.
  std::optional<LineSocket> daemon;
  ASSERT_TRUE(Await([&] {
    FileDescriptor fd(::accept4(listener->get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.get() >= 0) daemon.emplace(std::move(fd));
    return daemon.has_value();
  }));
  std::vector<std::string> lines;
  ASSERT_TRUE(Await([&] { return daemon->Read(lines).ok() && lines.size() == 2; }));
  client->SendStep(At(1));  // After the greeting and the first beat.
  ASSERT_TRUE(Await([&] { return daemon->Read(lines).ok() && lines.size() == 3; }));
  *listener = FileDescriptor();
  daemon.reset();
  EXPECT_TRUE(Await([&] { return StepsInFile() == std::vector<uint64_t>{1}; }));
}

}  // namespace
}  // namespace trainyard::channel
