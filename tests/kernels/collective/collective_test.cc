// Proves that both implementations, on threads here, give the same bits, which are the rank-ordered
// sums: for 1 to 5 ranks, each dtype, and sizes that do not divide by the ranks, zero among them.
// And that a rank that ends early ends the others.

#include "kernels/collective/collective.h"

#include <gmock/gmock.h>

#include <cstring>
#include <functional>
#include <tuple>

#include "common/rng.h"
#include "kernels/collective/gloo.h"
#include "kernels/collective/local.h"
#include "tests/kernels/collective/rendezvous_fakes.h"
#include "tests/testing/ranks.h"

namespace trainyard {
namespace {

using ::trainyard::testing::RunRanks;

// A world of ranks over Gloo, on threads.
class GlooThreads {
 public:
  explicit GlooThreads(int size, absl::Duration timeout = absl::Seconds(60))
      : ranks_(size_t(size)) {
    std::vector<std::thread> threads;
    for (int i = 0; i < size; ++i) {
      threads.emplace_back([&, i] {
        auto rank = CreateGlooWorld({.rank = i, .size = size, .timeout = timeout}, rendezvous_);
        EXPECT_TRUE(rank.ok()) << rank.status();
        if (rank.ok()) ranks_[size_t(i)] = *std::move(rank);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  ~GlooThreads() {  // On threads, for each rank waits for the others.
    std::vector<std::thread> threads;
    for (auto& rank : ranks_) threads.emplace_back([&rank] { rank.reset(); });
    for (std::thread& thread : threads) thread.join();
  }
  std::vector<CollectiveWorld*> worlds() const {
    std::vector<CollectiveWorld*> worlds;
    for (const auto& rank : ranks_) worlds.push_back(rank.get());
    return worlds;
  }

 private:
  testing::MemoryRendezvous rendezvous_;
  std::vector<std::unique_ptr<CollectiveWorld>> ranks_;
};

enum class Kind { kLocal, kGloo };

class CollectiveTest : public ::testing::TestWithParam<std::tuple<Kind, int>> {
 protected:
  CollectiveTest() {
    const auto [kind, size] = GetParam();
    if (kind == Kind::kGloo) {
      gloo_ = std::make_unique<GlooThreads>(size);
      ranks_ = gloo_->worlds();
    } else {
      local_ = std::make_unique<LocalWorld>(size);
      for (int i = 0; i < size; ++i) ranks_.push_back(&local_->world(i));
    }
  }
  int size() const { return std::get<1>(GetParam()); }

  std::unique_ptr<GlooThreads> gloo_;
  std::unique_ptr<LocalWorld> local_;
  std::vector<CollectiveWorld*> ranks_;
};

constexpr int64_t kSizes[] = {0, 1, 2, 3, 7, 1000, 1024, 4099, 100'003};

// Values whose sum depends on the order, so that equal bits mean equal order.
template <typename T>
std::vector<T> Data(int64_t elements, int rank) {
  std::vector<T> data;
  for (int64_t i = 0; i < elements; ++i) {
    data.push_back(T(1000 * Normal(7, uint64_t(rank), uint64_t(i))));
  }
  return data;
}

template <typename T>
std::vector<T> WantSum(int64_t elements, int size) {
  using A = std::conditional_t<std::is_same_v<T, bf16>, float, T>;
  std::vector<A> sum(size_t(elements), A(0));
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<T> part = Data<T>(elements, rank);
    for (size_t i = 0; i < part.size(); ++i) sum[i] = rank == 0 ? A(part[i]) : sum[i] + A(part[i]);
  }
  return std::vector<T>(sum.begin(), sum.end());
}

template <typename T>
Tensor View(std::vector<T>& data) {
  return Tensor{{data.data(), DTypeOf<T>::value, Shape{int64_t(data.size())}}};
}

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <typename T>
void ExpectRankOrderedSums(const std::vector<CollectiveWorld*>& ranks) {
  const auto errors = RunRanks(ranks, [](Collective& group) {
    for (int64_t elements : kSizes) {
      std::vector<T> data = Data<T>(elements, group.rank());
      group.AllReduceSum(View(data));
      EXPECT_TRUE(SameBits(data, WantSum<T>(elements, group.size())))
          << elements << " elements of " << DTypeOf<T>::value << " on rank " << group.rank();
    }
  });
  EXPECT_THAT(errors, ::testing::Each(""));
}

TEST_P(CollectiveTest, SumsAreThoseOfRankOrderBitForBit) {
  ExpectRankOrderedSums<double>(ranks_);
  ExpectRankOrderedSums<float>(ranks_);
  ExpectRankOrderedSums<bf16>(ranks_);
  ExpectRankOrderedSums<int64_t>(ranks_);
}

TEST_P(CollectiveTest, MaximumIsThatOfAllRanks) {
  const auto errors = RunRanks(ranks_, [](Collective& group) {
    std::vector<double> seconds = {double(group.rank()), -double(group.rank())};
    group.AllReduceMax(View(seconds));
    EXPECT_THAT(seconds, ::testing::ElementsAre(group.size() - 1, 0));
    std::vector<int64_t> flags = {group.rank() == group.size() - 1, -3};
    group.AllReduceMax(View(flags));
    EXPECT_THAT(flags, ::testing::ElementsAre(1, -3));
  });
  EXPECT_THAT(errors, ::testing::Each(""));
}

TEST_P(CollectiveTest, BroadcastGivesTheRootsBytesToAll) {
  const auto errors = RunRanks(ranks_, [](Collective& group) {
    for (int root = 0; root < group.size(); ++root) {
      std::vector<int32_t> data(10'001, group.rank());
      group.Broadcast(View(data), root);
      EXPECT_THAT(data, ::testing::Each(root));
    }
  });
  EXPECT_THAT(errors, ::testing::Each(""));
}

TEST_P(CollectiveTest, NobodyPassesABarrierBeforeAllHaveCome) {
  std::atomic<int> arrived = 0;
  const auto errors = RunRanks(ranks_, [&](Collective& group) {
    for (int round = 1; round <= 50; ++round) {
      ++arrived;
      group.Barrier();
      EXPECT_GE(arrived, round * group.size());
    }
  });
  EXPECT_THAT(errors, ::testing::Each(""));
}

TEST_P(CollectiveTest, RankThatAbortsEndsTheOthersInTheMiddleOfASum) {
  const int culprit = size() - 1;
  const auto errors = RunRanks(ranks_, [&](Collective& group) {
    for (int round = 0;; ++round) {
      std::vector<float> data(50'000, 1);  // Dies when this rank unwinds: nobody may read it then.
      if (group.rank() == culprit && round == 20) group.Abort();
      group.AllReduceSum(View(data));
    }
  });
  EXPECT_THAT(errors, ::testing::Each(::testing::Not("")));
}

TEST_P(CollectiveTest, AbortFromAnotherThreadEndsAWaitingRankAndThenTheRest) {
  std::atomic<int> waiting = 0;
  const auto errors = RunRanks(ranks_, [&](Collective& group) {
    if (group.rank() == 0) {
      while (waiting < size() - 1) std::this_thread::yield();
      ranks_.back()->Abort();
    } else {
      ++waiting;
    }
    for (;;) group.Barrier();
  });
  EXPECT_THAT(errors, ::testing::Each(::testing::Not("")));
}

std::string NameOf(const ::testing::TestParamInfo<std::tuple<Kind, int>>& info) {
  return absl::StrCat(std::get<0>(info.param) == Kind::kLocal ? "Local" : "Gloo",
                      std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(Ranks, CollectiveTest,
                         ::testing::Combine(::testing::Values(Kind::kLocal, Kind::kGloo),
                                            ::testing::Range(1, 6)),
                         NameOf);

TEST(Gloo, OperationPastItsTimeoutThrowsAndNamesItself) {
  GlooThreads gloo(2, absl::Milliseconds(50));
  const auto errors = RunRanks(gloo.worlds(), [&](Collective& group) {
    if (group.rank() == 1) return;
    std::vector<double> data = {1};
    group.AllReduceSum(View(data));  // Rank 1 does not come.
  });
  EXPECT_THAT(errors[0], ::testing::HasSubstr("all_reduce_sum 1 of group everyone, rank 0 of 2"));
}

TEST(Gloo, MissingRankIsADeadlineThatNamesItsKey) {
  testing::MemoryRendezvous rendezvous;
  const auto rank = CreateGlooWorld(
      {.rank = 0, .size = 2, .connect_timeout = absl::Milliseconds(50)}, rendezvous);
  EXPECT_EQ(rank.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(rank.status().message()), ::testing::HasSubstr("gloo/1"));
}

TEST(Gloo, InterfaceThatIsNotThisMachinesIsAnErrorThatNamesIt) {
  testing::MemoryRendezvous rendezvous;
  for (const std::string interface : {"no-such-device", "192.0.2.1"}) {
    const auto rank = CreateGlooWorld({.rank = 0, .size = 2, .interface = interface}, rendezvous);
    EXPECT_EQ(rank.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(rank.status().message()), ::testing::HasSubstr(interface));
  }
}

}  // namespace
}  // namespace trainyard
