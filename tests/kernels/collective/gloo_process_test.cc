// Proves, on real processes, that Gloo's sums equal those of threads bit for bit, that the kill of
// one rank ends the others in any operation and group, that a rank that stops answering ends them
// at the timeout, and that the errors say who was lost and where.

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "common/rng.h"
#include "kernels/collective/gloo.h"
#include "kernels/collective/local.h"
#include "tests/kernels/collective/rendezvous_fakes.h"
#include "tests/kernels/collective/waiting_operations.h"
#include "tests/testing/ranks.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;

constexpr int kPeerLost = 42, kNotConnected = 43;

std::string Directory() {
  const std::string path =
      absl::StrCat(::testing::TempDir(), "/gloo_process_",
                   ::testing::UnitTest::GetInstance()->current_test_info()->name());
  EXPECT_TRUE(RemoveTree(path).ok());
  EXPECT_TRUE(MakeDirectories(path).ok());
  return path;
}

// Each rank in a process of its own; what f returns is its exit code. A rank that loses a peer
// leaves the message in ErrorOf.
std::vector<pid_t> Fork(int size, const std::string& directory, absl::Duration timeout,
                        const std::function<int(CollectiveWorld&)>& f) {
  std::vector<pid_t> pids;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      testing::FileRendezvous rendezvous(directory);
      int code = kNotConnected;
      {
        auto world = CreateGlooWorld({.rank = rank, .size = size, .timeout = timeout}, rendezvous);
        try {
          if (world.ok()) code = f(**world);
        } catch (const DeviceError& error) {
          code = error.kind == DeviceError::Kind::kPeerLost ? kPeerLost : 1;
          if (!WriteFileAtomic(absl::StrCat(directory, "/error_", rank), error.what()).ok())
            code = 1;
        }
      }
      ::_exit(code);
    }
    pids.push_back(pid);
  }
  return pids;
}

std::string ErrorOf(const std::string& directory, int rank) {
  return ReadFile(absl::StrCat(directory, "/error_", rank)).value_or("none");
}

int WaitFor(pid_t pid) {
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::vector<float> SumOfNormals(Collective& group) {
  std::vector<float> data(10'007);
  for (size_t i = 0; i < data.size(); ++i) data[i] = float(Normal(1, uint64_t(group.rank()), i));
  group.AllReduceSum(Tensor{{data.data(), DType::kF32, Shape{int64_t(data.size())}}});
  return data;
}

TEST(GlooProcesses, SumsEqualThoseOfThreadsBitForBit) {
  const std::string directory = Directory();
  const auto pids = Fork(3, directory, absl::Seconds(60), [&](CollectiveWorld& world) {
    const auto joined = world.Everyone();
    Collective& group = **joined;
    const std::vector<float> sum = SumOfNormals(group);
    const std::string bytes(reinterpret_cast<const char*>(sum.data()), sum.size() * sizeof(float));
    return WriteFileAtomic(absl::StrCat(directory, "/sum_", group.rank()), bytes).ok() ? 0 : 1;
  });
  for (pid_t pid : pids) EXPECT_EQ(WaitFor(pid), 0);
  testing::RunRanks(3, [&](Collective& group) {
    const std::vector<float> want = SumOfNormals(group);
    const auto got = ReadFile(absl::StrCat(directory, "/sum_", group.rank()));
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_EQ(got->size(), want.size() * sizeof(float));
    EXPECT_EQ(std::memcmp(got->data(), want.data(), got->size()), 0);
  });
}

TEST(GlooProcesses, KillOfOneRankEndsTheOthers) {
  const std::string directory = Directory();
  const auto pids = Fork(3, directory, absl::Minutes(10), [](CollectiveWorld& world) {
    const auto joined = world.Everyone();
    Collective& group = **joined;
    for (int round = 0;; ++round) {
      SumOfNormals(group);
      if (group.rank() == 1 && round == 10) ::raise(SIGKILL);
    }
    return 0;
  });
  EXPECT_EQ(WaitFor(pids[1]), -SIGKILL);
  EXPECT_EQ(WaitFor(pids[0]), kPeerLost);
  EXPECT_EQ(WaitFor(pids[2]), kPeerLost);
}

TEST(GlooProcesses, KillEndsTheRanksThatWaitInAnyOperationAndTheyNameTheDead) {
  for (const testing::WaitingOperation& operation : testing::WaitingOperations()) {
    SCOPED_TRACE(operation.name);
    const std::string directory = Directory();
    const auto pids = Fork(3, directory, absl::Minutes(10), [&](CollectiveWorld& world) {
      testing::FileRendezvous inside(directory);
      const auto group = world.Group("pipeline", {1, 0, 2});
      if (world.rank() == 2) {
        for (const char* rank : {"inside_0", "inside_1"}) {
          if (!inside.Get(rank, absl::Minutes(1)).ok()) return 1;
        }
        ::raise(SIGKILL);
      }
      std::thread watchdog([&] {
        while (!testing::Waits(**group, operation.name)) std::this_thread::yield();
        EXPECT_TRUE(inside.Set(absl::StrCat("inside_", world.rank()), "").ok());
      });
      watchdog.detach();  // Ends before the operation can, or with the process.
      std::vector<double> all(3), other(3);
      operation.call(**group, 2, Tensor{{all.data(), DType::kF64, Shape{3}}},
                     Tensor{{other.data(), DType::kF64, Shape{3}}});
      return 0;
    });
    EXPECT_EQ(WaitFor(pids[2]), -SIGKILL);
    for (int rank : {0, 1}) {
      EXPECT_EQ(WaitFor(pids[size_t(rank)]), kPeerLost);
      EXPECT_THAT(ErrorOf(directory, rank), HasSubstr(operation.name + " 1"));
      EXPECT_THAT(ErrorOf(directory, rank),
                  HasSubstr(absl::StrCat(" of group pipeline, rank ", 1 - rank,
                                         " of 3 (world rank ", rank, "): lost world rank ")));
    }
    // Rank 0 may have lost rank 1 first, which had lost rank 2, or the other way round.
    EXPECT_THAT(ErrorOf(directory, 0) + ErrorOf(directory, 1), HasSubstr("lost world rank 2 "));
  }
}

// Catches a wait for a message of which only a part came or left before its connection broke.
TEST(GlooProcesses, KillInTheMidstOfAMessageEndsItsReceiverAndItsSender) {
  for (const int receiver : {0, 1}) {
    SCOPED_TRACE(absl::StrCat("rank ", receiver, " receives"));
    const std::string directory = Directory();
    const auto pids = Fork(2, directory, absl::Minutes(10), [&](CollectiveWorld& world) {
      testing::FileRendezvous inside(directory);
      const auto group = world.Everyone();
      std::vector<float> data(16 << 20);  // More than sockets hold.
      const Tensor tensor{{data.data(), DType::kF32, Shape{int64_t(data.size())}}};
      if (world.rank() == receiver) {
        const ReceiveHandle message = (*group)->PostReceive(tensor, 1 - receiver);
        (*group)->Barrier();
        ::raise(SIGSTOP);
        (*group)->WaitReceive(message);
      } else {
        (*group)->Barrier();
        if (!inside.Get("receiver_stopped", absl::Minutes(1)).ok()) return 1;
        const SendHandle message = (*group)->PostSend(tensor, receiver);
        if (!inside.Set("a_part_is_sent", "").ok()) return 1;
        (*group)->WaitSend(message);
      }
      return 0;
    });
    int status = 0;
    EXPECT_EQ(::waitpid(pids[size_t(receiver)], &status, WUNTRACED), pids[size_t(receiver)]);
    testing::FileRendezvous inside(directory);
    EXPECT_TRUE(inside.Set("receiver_stopped", "").ok());
    EXPECT_TRUE(inside.Get("a_part_is_sent", absl::Minutes(1)).ok());
    ::kill(pids[1], SIGKILL);
    EXPECT_EQ(WaitFor(pids[1]), -SIGKILL);
    ::kill(pids[0], SIGCONT);
    EXPECT_EQ(WaitFor(pids[0]), kPeerLost);
    EXPECT_THAT(ErrorOf(directory, 0), HasSubstr("lost world rank 1 ("));
  }
}

// A chain of groups: rank 3 dies, rank 2 waits for it, 1 for 2, and 0 for 1.
TEST(GlooProcesses, KillEndsRanksOfGroupsThatDoNotContainTheDead) {
  const std::string directory = Directory();
  const auto pids = Fork(4, directory, absl::Minutes(10), [](CollectiveWorld& world) {
    std::unique_ptr<Collective> last;
    for (int first : {0, 1, 2}) {
      if (world.rank() != first && world.rank() != first + 1) continue;
      if (last != nullptr) SumOfNormals(*last);
      last = *world.Group(absl::StrCat("link-", first), {first, first + 1});
    }
    if (world.rank() == 3) ::raise(SIGKILL);
    SumOfNormals(*last);
    SumOfNormals(*last);
    return 0;
  });
  EXPECT_EQ(WaitFor(pids[3]), -SIGKILL);
  for (int rank : {0, 1, 2}) {
    EXPECT_EQ(WaitFor(pids[size_t(rank)]), kPeerLost);
    EXPECT_THAT(ErrorOf(directory, rank),
                HasSubstr(absl::StrCat(" of group link-", rank, ", rank 0 of 2 (world rank ", rank,
                                       "): lost world rank ", rank + 1, " ")));
  }
}

TEST(GlooProcesses, RankThatHangsEndsTheOthersAtTheTimeoutWhichNamesIt) {
  const std::string directory = Directory();
  const auto pids = Fork(3, directory, absl::Seconds(2), [](CollectiveWorld& world) {
    const auto joined = world.Everyone();
    Collective& group = **joined;
    for (int round = 0;; ++round) {
      SumOfNormals(group);
      if (group.rank() == 1 && round == 10) ::raise(SIGSTOP);
    }
    return 0;
  });
  EXPECT_EQ(WaitFor(pids[0]), kPeerLost);
  EXPECT_EQ(WaitFor(pids[2]), kPeerLost);
  EXPECT_THAT(ErrorOf(directory, 0) + ErrorOf(directory, 2),
              HasSubstr("no word within 2s from world rank 1 "));
  ::kill(pids[1], SIGKILL);
  EXPECT_EQ(WaitFor(pids[1]), -SIGKILL);
}

}  // namespace
}  // namespace trainyard
