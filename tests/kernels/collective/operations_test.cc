// Proves that every operation of every implementation gives what its definition says, to the bit:
// for each dtype, sizes that do not divide by anything, zero among them, in place and not, and for
// messages that are sent long before they are received.

#include "tests/kernels/collective/worlds.h"

namespace trainyard {
namespace {

using testing::Data;
using ::testing::Each;
using testing::RunRanks;
using testing::SameBits;
using testing::SliceOf;
using testing::SumOverRanks;
using testing::View;

constexpr int64_t kSizes[] = {0, 1, 2, 3, 7, 1000, 6007};

class OperationsTest : public testing::WorldsTest {
 protected:
  // As every rank, for the dtypes that hold anything.
  template <typename F>
  void ForEachDType(F&& f) {
    Run([&](Collective& group) { f(group, double{}); });
    Run([&](Collective& group) { f(group, float{}); });
    Run([&](Collective& group) { f(group, bf16{}); });
    Run([&](Collective& group) { f(group, int32_t{}); });
    Run([&](Collective& group) { f(group, int64_t{}); });
  }
  // For those that can be summed.
  template <typename F>
  void ForEachSum(F&& f) {
    Run([&](Collective& group) { f(group, double{}); });
    Run([&](Collective& group) { f(group, float{}); });
    Run([&](Collective& group) { f(group, bf16{}); });
    Run([&](Collective& group) { f(group, int64_t{}); });
  }
  void Run(const std::function<void(Collective&)>& f) {
    EXPECT_THAT(RunRanks(worlds(), f), Each(""));
  }
};

// Rank 0's data, then rank 1's, and so on.
template <typename T>
std::vector<T> Gathered(int64_t elements, int size) {
  std::vector<T> all;
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<T> part = Data<T>(elements, rank);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

TEST_P(OperationsTest, AllReduceIsTheSumInRankOrder) {
  ForEachSum([]<typename T>(Collective& group, T) {
    for (int64_t elements : kSizes) {
      std::vector<T> data = Data<T>(elements, group.rank());
      group.AllReduceSum(View(data));
      const auto part = [&](int rank) { return Data<T>(elements, rank); };
      EXPECT_TRUE(SameBits(data, SumOverRanks<T>(group.size(), part)))
          << elements << " elements of " << DTypeOf<T>::value << " on rank " << group.rank();
    }
  });
}

TEST_P(OperationsTest, MaximumIsThatOfAllRanks) {
  Run([](Collective& group) {
    std::vector<double> seconds = {double(group.rank()), -double(group.rank())};
    group.AllReduceMax(View(seconds));
    EXPECT_THAT(seconds, ::testing::ElementsAre(group.size() - 1, 0));
    std::vector<int64_t> flags = {group.rank() == group.size() - 1, -3};
    group.AllReduceMax(View(flags));
    EXPECT_THAT(flags, ::testing::ElementsAre(1, -3));
  });
}

TEST_P(OperationsTest, BroadcastGivesTheRootsBytesToAll) {
  ForEachDType([]<typename T>(Collective& group, T) {
    for (int root : {0, group.size() - 1}) {
      for (int64_t elements : kSizes) {
        std::vector<T> data = Data<T>(elements, group.rank());
        group.Broadcast(View(data), root);
        EXPECT_TRUE(SameBits(data, Data<T>(elements, root))) << elements << " from " << root;
      }
    }
  });
}

TEST_P(OperationsTest, AllGatherPutsTheRanksTensorsInRankOrder) {
  ForEachDType([]<typename T>(Collective& group, T) {
    for (int64_t elements : kSizes) {
      const std::vector<T> mine = Data<T>(elements, group.rank());
      const std::vector<T> want = Gathered<T>(elements, group.size());
      std::vector<T> all(want.size());
      group.AllGather(View(mine), View(all));
      EXPECT_TRUE(SameBits(all, want)) << elements;

      std::vector<T> in_place(want.size());
      std::copy(mine.begin(), mine.end(), in_place.begin() + group.rank() * elements);
      group.AllGather(View(in_place, group.rank() * elements, elements), View(in_place));
      EXPECT_TRUE(SameBits(in_place, want)) << elements << " in place";
    }
  });
}

TEST_P(OperationsTest, ReduceScatterGivesEachRankItsSliceOfTheSum) {
  ForEachSum([]<typename T>(Collective& group, T) {
    for (int64_t elements : kSizes) {
      const int64_t begin = group.rank() * elements;
      const auto whole = [&](int rank) { return Data<T>(elements * group.size(), rank); };
      const std::vector<T> want = SliceOf(SumOverRanks<T>(group.size(), whole), begin, elements);
      const std::vector<T> all = whole(group.rank());
      std::vector<T> mine(size_t(elements), T(0));
      group.ReduceScatterSum(View(all), View(mine));
      EXPECT_TRUE(SameBits(mine, want)) << elements << " of " << DTypeOf<T>::value;

      std::vector<T> in_place = all, want_in_place = all;
      std::copy(want.begin(), want.end(), want_in_place.begin() + begin);
      group.ReduceScatterSum(View(in_place), View(in_place, begin, elements));
      EXPECT_TRUE(SameBits(in_place, want_in_place)) << elements << " in place";
    }
  });
}

TEST_P(OperationsTest, AllToAllTransposesTheSlices) {
  ForEachDType([]<typename T>(Collective& group, T) {
    for (int64_t elements : kSizes) {
      const std::vector<T> send = Data<T>(elements * group.size(), group.rank());
      std::vector<T> receive(send.size()), want;
      for (int peer = 0; peer < group.size(); ++peer) {
        const auto slice =
            SliceOf(Data<T>(elements * group.size(), peer), group.rank() * elements, elements);
        want.insert(want.end(), slice.begin(), slice.end());
      }
      const std::vector<int64_t> rows(group.size(), elements);
      group.AllToAll(View(send), rows, View(receive), rows);
      EXPECT_TRUE(SameBits(receive, want)) << elements;
    }
  });
}

// What rank `from` sends to rank `to`: many zeros among them.
int64_t Rows(int from, int to) { return (3 * from + 5 * to) % 4 * ((from + 2 * to) % 7); }

TEST_P(OperationsTest, AllToAllMovesBlocksOfAnySizeAndNothingElse) {
  constexpr int64_t kWidth = 5, kSpare = 3;
  ForEachDType([]<typename T>(Collective& group, T) {
    std::vector<int64_t> send_rows, receive_rows;
    int64_t sent = 0, received = 0;
    for (int peer = 0; peer < group.size(); ++peer) {
      sent += send_rows.emplace_back(Rows(group.rank(), peer));
      received += receive_rows.emplace_back(Rows(peer, group.rank()));
    }
    const std::vector<T> send = Data<T>((sent + kSpare) * kWidth, group.rank());
    std::vector<T> receive(size_t((received + kSpare) * kWidth), T(-1)), want;
    for (int from = 0; from < group.size(); ++from) {
      int64_t before = 0;
      for (int to = 0; to < group.rank(); ++to) before += Rows(from, to);
      const int64_t rows = Rows(from, group.rank());
      const auto block =
          SliceOf(Data<T>((before + rows) * kWidth, from), before * kWidth, rows * kWidth);
      want.insert(want.end(), block.begin(), block.end());
    }
    want.resize(receive.size(), T(-1));
    group.AllToAll({send.data(), DTypeOf<T>::value, Shape{sent + kSpare, kWidth}}, send_rows,
                   Tensor{{receive.data(), DTypeOf<T>::value, Shape{received + kSpare, kWidth}}},
                   receive_rows);
    EXPECT_TRUE(SameBits(receive, want)) << "rank " << group.rank();
  });
}

TEST_P(OperationsTest, AllToAllOfNoRowsAtAllPasses) {
  Run([](Collective& group) {
    const std::vector<int64_t> none(size_t(group.size()), 0);
    group.AllToAll({nullptr, DType::kBF16, Shape{0, 8}}, none,
                   Tensor{{nullptr, DType::kBF16, Shape{0, 8}}}, none);
  });
}

TEST_P(OperationsTest, HundredSendsGoOutBeforeTheFirstReceiveAndArriveInOrder) {
  constexpr int kMessages = 100;
  ForEachDType([]<typename T>(Collective& group, T) {
    const auto elements = [](int i) { return int64_t{i} * i % 311; };
    std::vector<std::vector<T>> sent(kMessages);
    std::vector<SendHandle> handles;
    for (int i = 0; i < kMessages; ++i) {
      sent[size_t(i)] = Data<T>(elements(i), group.rank() * kMessages + i);
      for (int peer = 0; peer < group.size(); ++peer) {
        if (peer == group.rank()) continue;
        handles.push_back(group.PostSend(View(std::as_const(sent[size_t(i)])), peer));
      }
    }
    for (int peer = 0; peer < group.size(); ++peer) {
      if (peer == group.rank()) continue;
      for (int i = 0; i < kMessages; ++i) {
        std::vector<T> got(size_t(elements(i)), T(0));
        group.Receive(View(got), peer);
        EXPECT_TRUE(SameBits(got, Data<T>(elements(i), peer * kMessages + i)))
            << "message " << i << " from " << peer;
      }
    }
    // In an order that is neither that of posting nor its reverse.
    for (size_t i = 0; i < handles.size(); i += 2) group.WaitSend(handles[i]);
    for (size_t i = 1; i < handles.size(); i += 2) group.WaitSend(handles[i]);
  });
}

TEST_P(OperationsTest, ReceiveMayStandBeforeTheSendIsPosted) {
  if (size() < 2) return;
  Run([](Collective& group) {
    std::vector<float> ball = {1};
    for (int round = 0; round < 20; ++round) {  // From rank to rank: all but one wait.
      if (group.rank() > 0 || round > 0) {
        group.Receive(View(ball), (group.rank() + group.size() - 1) % group.size());
      }
      ball[0] += 1;
      if (group.rank() == group.size() - 1 && round == 19) break;
      group.WaitSend(group.PostSend(View(ball), (group.rank() + 1) % group.size()));
    }
    if (group.rank() == group.size() - 1) {
      EXPECT_EQ(ball[0], 1 + 20 * group.size());
    }
  });
}

TEST_P(OperationsTest, RingShiftMovesEachTensorOneRankOn) {
  ForEachDType([]<typename T>(Collective& group, T) {
    const int next = (group.rank() + 1) % group.size();
    const int previous = (group.rank() + group.size() - 1) % group.size();
    for (int64_t elements : kSizes) {
      std::vector<T> block = Data<T>(elements, group.rank()), received(block.size());
      for (int step = 0; step < group.size(); ++step) {
        group.SendReceive(View(block), next, View(received), previous);
        block.swap(received);
        const int origin = (group.rank() + 2 * group.size() - step - 1) % group.size();
        EXPECT_TRUE(SameBits(block, Data<T>(elements, origin))) << elements << ", step " << step;
      }
    }
  });
}

TEST_P(OperationsTest, PostedReceivesAreFilledInTheOrderOfTheirMessages) {
  Run([&](Collective& group) {
    if (group.size() == 1) return;
    const int next = (group.rank() + 1) % group.size();
    const int previous = (group.rank() + group.size() - 1) % group.size();
    std::vector<double> first(3, -1), second(2, -1);
    const ReceiveHandle one = group.PostReceive(View(first), previous);
    const ReceiveHandle two = group.PostReceive(View(second), previous);
    const std::vector<double> a(3, group.rank()), b(2, 10 + group.rank());
    const SendHandle sent_a = group.PostSend(View(a), next);
    const SendHandle sent_b = group.PostSend(View(b), next);
    group.WaitReceive(one);
    EXPECT_EQ(first, std::vector<double>(3, previous));
    group.WaitReceive(two);
    EXPECT_EQ(second, std::vector<double>(2, 10 + previous));
    group.WaitSend(sent_a);
    group.WaitSend(sent_b);
  });
}

// Both are counted together, but an implementation need not send them the same way.
TEST_P(OperationsTest, MessagesGoBetweenTheShiftsOfARing) {
  if (size() < 2) return;
  Run([](Collective& group) {
    const int next = (group.rank() + 1) % group.size();
    const int previous = (group.rank() + group.size() - 1) % group.size();
    for (int round = 0; round < 3; ++round) {
      const std::vector<double> mine(3, 10 * round + group.rank());
      const std::vector<double> wanted(3, 10 * round + previous);
      std::vector<double> message(3), shifted(3);
      group.SendReceive(View(mine), next, View(shifted), previous);
      EXPECT_EQ(shifted, wanted);
      const SendHandle sent = group.PostSend(View(mine), next);
      group.Receive(View(message), previous);
      group.WaitSend(sent);
      EXPECT_EQ(message, wanted);
    }
  });
}

TEST_P(OperationsTest, NobodyPassesABarrierBeforeAllHaveCome) {
  std::atomic<int> arrived = 0;
  Run([&](Collective& group) {
    for (int round = 1; round <= 50; ++round) {
      ++arrived;
      group.Barrier();
      EXPECT_GE(arrived, round * group.size());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, OperationsTest, ::testing::ValuesIn(testing::TestedWorlds()),
                         testing::NameOfWorld);

}  // namespace
}  // namespace trainyard
