// Proves, on real processes, that Gloo's sums equal those of threads bit for bit, that the kill of
// one rank ends the others, and that a rank that stops answering ends them at the timeout.

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "common/rng.h"
#include "kernels/collective/gloo.h"
#include "kernels/collective/local.h"
#include "tests/kernels/collective/rendezvous_fakes.h"
#include "tests/testing/ranks.h"

namespace trainyard {
namespace {

constexpr int kPeerLost = 42, kNotConnected = 43;

std::string Directory() {
  const std::string path =
      absl::StrCat(::testing::TempDir(), "/gloo_process_",
                   ::testing::UnitTest::GetInstance()->current_test_info()->name());
  EXPECT_TRUE(RemoveTree(path).ok());
  EXPECT_TRUE(MakeDirectories(path).ok());
  return path;
}

// Each rank in a process of its own; what f returns is its exit code.
std::vector<pid_t> Fork(int size, const std::string& directory, absl::Duration timeout,
                        const std::function<int(Collective&)>& f) {
  std::vector<pid_t> pids;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      testing::FileRendezvous rendezvous(directory);
      int code = kNotConnected;
      {
        auto world = CreateGlooWorld({.rank = rank, .size = size, .timeout = timeout}, rendezvous);
        try {
          if (world.ok()) code = f(**(*world)->Everyone());
        } catch (const DeviceError& error) {
          code = error.kind == DeviceError::Kind::kPeerLost ? kPeerLost : 1;
        }
      }
      ::_exit(code);
    }
    pids.push_back(pid);
  }
  return pids;
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
  const auto pids = Fork(3, directory, absl::Seconds(60), [&](Collective& group) {
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
  const auto pids = Fork(3, Directory(), absl::Minutes(10), [](Collective& group) {
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

TEST(GlooProcesses, RankThatHangsEndsTheOthersAtTheTimeout) {
  const auto pids = Fork(3, Directory(), absl::Seconds(3), [](Collective& group) {
    for (int round = 0;; ++round) {
      SumOfNormals(group);
      if (group.rank() == 1 && round == 10) ::raise(SIGSTOP);
    }
    return 0;
  });
  EXPECT_EQ(WaitFor(pids[0]), kPeerLost);
  EXPECT_EQ(WaitFor(pids[2]), kPeerLost);
  ::kill(pids[1], SIGKILL);
  EXPECT_EQ(WaitFor(pids[1]), -SIGKILL);
}

}  // namespace
}  // namespace trainyard
