// Proves what is Gloo's alone: timeouts, and errors of finding each other, that name their culprit.

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <thread>

#include "tests/kernels/collective/worlds.h"

namespace trainyard {
namespace {

using testing::GlooThreads;
using ::testing::HasSubstr;
using testing::RunRanks;
using testing::View;

TEST(Gloo, OperationPastItsTimeoutNamesItselfAndAllWhoDidNotCome) {
  GlooThreads gloo(4, absl::Milliseconds(50));
  const auto errors = RunRanks(gloo.worlds(), [&](Collective& group) {
    group.Barrier();
    std::vector<double> data = {1};
    if (group.rank() == 1) group.AllReduceSum(View(data));
  });
  EXPECT_THAT(errors[1], HasSubstr("all_reduce_sum 2 of group everyone, rank 1 of 4 (world rank 1)"
                                   ": no word within 50ms from world rank 0, 2, 3 ("));
}

TEST(Gloo, ThoseWhoCameAreNotNamed) {
  GlooThreads gloo(3, absl::Milliseconds(50));
  const auto errors = RunRanks(gloo.worlds(), [&](Collective& group) {
    group.Barrier();
    std::vector<double> data = {1};
    // Rank 2 looks at rank 0 first, which comes, but waits for rank 1.
    if (group.rank() != 1) group.AllReduceSum(View(data));
  });
  for (int rank : {0, 2}) {
    EXPECT_THAT(errors[size_t(rank)], ::testing::AnyOf(HasSubstr("50ms from world rank 1 ("),
                                                       HasSubstr("lost world rank ")));
  }
  EXPECT_THAT(errors, ::testing::Contains(HasSubstr("50ms from world rank 1 (")));
}

TEST(Gloo, PeerThatDoesNotReceiveIsNamedByTheWaitForTheSend) {
  GlooThreads gloo(2, absl::Milliseconds(50));
  const auto errors = RunRanks(gloo.worlds(), [&](Collective& group) {
    const std::vector<double> data = {1};
    if (group.rank() == 0) group.WaitSend(group.PostSend(View(data), 1));
  });
  EXPECT_THAT(errors[0], HasSubstr("wait_send 1 to world rank 1 of group everyone, rank 0 of 2"));
  EXPECT_THAT(errors[0], HasSubstr("no word within 50ms from world rank 1 "));
}

// So that it travels while the receiver computes.
TEST(Gloo, APostedReceiveTakesItsMessageBeforeItIsWaitedFor) {
  GlooThreads gloo(2);
  std::promise<void> sent;
  const auto errors = RunRanks(gloo.worlds(), [&](Collective& group) {
    std::vector<double> data = {1.0 + group.rank()};
    if (group.rank() == 0) {
      const ReceiveHandle coming = group.PostReceive(View(data), 1);
      sent.get_future().wait();  // In vain if the message waits for WaitReceive.
      group.WaitReceive(coming);
      EXPECT_EQ(data[0], 2);
    } else {
      group.WaitSend(group.PostSend(View(data), 0));
      sent.set_value();
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
// With libc's, Gloo's threads would spin (gloo_mesh_adapter.cc).
TEST(Gloo, WaitsForEventsByAFunctionThatYields) {
  Dl_info found, ours;
  ASSERT_NE(::dladdr(::dlsym(RTLD_DEFAULT, "epoll_wait"), &found), 0);
  ASSERT_NE(::dladdr(reinterpret_cast<void*>(&CreateGlooWorld), &ours), 0);
  EXPECT_STREQ(found.dli_fname, ours.dli_fname);
}
#endif

TEST(Gloo, MissingRankIsADeadlineThatNamesItsKey) {
  testing::MemoryRendezvous rendezvous;
  const auto rank = CreateGlooWorld(
      {.rank = 0, .size = 2, .connect_timeout = absl::Milliseconds(50)}, rendezvous);
  EXPECT_EQ(rank.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(rank.status().message()), HasSubstr("gloo/1"));
}

TEST(Gloo, InterfaceThatIsNotThisMachinesIsAnErrorThatNamesIt) {
  testing::MemoryRendezvous rendezvous;
  for (const std::string interface : {"no-such-device", "192.0.2.1"}) {
    const auto rank = CreateGlooWorld({.rank = 0, .size = 2, .interface = interface}, rendezvous);
    EXPECT_EQ(rank.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(rank.status().message()), HasSubstr(interface));
  }
}

// The rendezvous of somebody who was not told the secret, and guesses.
class Stranger final : public Rendezvous {
 public:
  explicit Stranger(Rendezvous& others) : others_(others) {}
  absl::Status Set(const std::string& key, const std::string& value) override {
    return others_.Set(key, value);
  }
  absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) override {
    absl::StatusOr<std::string> value = others_.Get(key, timeout);
    if (value.ok() && key == "gloo/secret") value->back() = value->back() == '0' ? '1' : '0';
    return value;
  }

 private:
  Rendezvous& others_;
};

TEST(Gloo, WhoDoesNotKnowTheSecretOfTheAttemptIsNoPeer) {
  testing::MemoryRendezvous rendezvous;
  Stranger stranger(rendezvous);
  std::vector<absl::Status> met(3);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      Rendezvous& its = rank == 2 ? static_cast<Rendezvous&>(stranger) : rendezvous;
      met[size_t(rank)] = CreateGlooWorld({.rank = rank, .size = 3}, its).status();
    });
  }
  for (std::thread& thread : ranks) thread.join();
  for (const absl::Status& status : met) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  }
  // Of the two that know the secret, at least the first to say so names the third.
  EXPECT_THAT(absl::StrCat(met[0].message(), met[1].message()),
              HasSubstr("world rank 2 is no rank of this attempt"));
}

// The ports on which this process listens.
std::vector<int> ListeningPorts() {
  std::vector<int> ports;
  for (int fd = 3; fd < 200; ++fd) {
    sockaddr_in address = {};
    socklen_t bytes = sizeof(address);
    int listens = 0;
    socklen_t size = sizeof(listens);
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) continue;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) continue;
    if (address.sin_family == AF_INET) ports.push_back(ntohs(address.sin_port));
  }
  return ports;
}

// Ranks that listen hear of each other only once strangers have talked to them.
class Late final : public Rendezvous {
 public:
  Late(Rendezvous& rendezvous, const std::atomic<int>& talked)
      : rendezvous_(rendezvous), talked_(talked) {}
  absl::Status Set(const std::string& key, const std::string& value) override {
    return rendezvous_.Set(key, value);
  }
  absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) override {
    const int before = talked_;
    for (int i = 0; i < 2000 && !ListeningPorts().empty() && talked_ < before + 5; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return rendezvous_.Get(key, timeout);
  }

 private:
  Rendezvous& rendezvous_;
  const std::atomic<int>& talked_;
};

// Gloo takes whoever connects first for the peer: ranks do not meet then, and say so.
TEST(Gloo, StrangersThatConnectFirstTakeNoPart) {
  testing::MemoryRendezvous rendezvous;
  // Not without end: Gloo keeps each of them, and has only so many descriptors.
  constexpr int kStrangers = 60;
  std::atomic<bool> met = false;
  std::atomic<int> talked = 0;
  std::thread strangers([&] {
    const std::string noise(64, '\xee');
    while (!met && talked < kStrangers) {
      for (const int port : ListeningPorts()) {
        const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in address = {};
        address.sin_family = AF_INET;
        address.sin_port = htons(uint16_t(port));
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
            ::send(fd, noise.data(), noise.size(), MSG_NOSIGNAL) > 0) {
          ++talked;
        }
        ::close(fd);
      }
    }
  });
  std::vector<absl::Status> results(3);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      Late late(rendezvous, talked);
      const auto world =
          CreateGlooWorld({.rank = rank, .size = 3, .connect_timeout = absl::Seconds(2)}, late);
      results[size_t(rank)] = world.status();
    });
  }
  for (std::thread& thread : ranks) thread.join();
  met = true;
  strangers.join();
  for (const absl::Status& status : results) EXPECT_FALSE(status.ok());
  EXPECT_GE(talked, 5);
}

}  // namespace
}  // namespace trainyard
