// Proves that calls, bytes and seconds are those of the definitions, that the flight recorder keeps
// the last operations, alike on ranks that agree, and that noting them allocates nothing.

#include <algorithm>

#include "tests/kernels/collective/worlds.h"
#include "tests/testing/allocations.h"

namespace trainyard {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::RunRanks;
using testing::RunWorlds;
using testing::View;

TEST(Counts, AreCallsAndTheBytesOfTheFormulas) {
  constexpr int kRanks = 4;
  const auto errors = RunRanks(kRanks, [](Collective& group) {
    std::vector<float> all(40), other(40);
    std::vector<double> f64(6);
    const int next = (group.rank() + 1) % kRanks, previous = (group.rank() + 3) % kRanks;
    group.AllReduceSum(View(all));
    group.AllReduceSum(View(all));
    group.AllReduceMax(View(f64));
    group.Broadcast(View(all), 2);
    group.Barrier();
    group.AllGather(View(all, 10 * group.rank(), 10), View(all));
    group.ReduceScatterSum(View(all), View(other, 0, 10));
    // Rank r sends peer p p rows of 8 bytes, and so receives r rows from each.
    const std::vector<int64_t> send_rows = {0, 1, 2, 3}, receive_rows(4, group.rank());
    group.AllToAll({all.data(), DType::kF32, Shape{20, 2}}, send_rows,
                   Tensor{{other.data(), DType::kF32, Shape{20, 2}}}, receive_rows);
    const SendHandle sent = group.PostSend(View(all), next);
    group.Receive(View(other), previous);
    group.WaitSend(sent);
    group.SendReceive(View(all, 0, 10), next, View(other, 0, 10), previous);

    const auto expect = [&](CollectiveOp op, int64_t calls, int64_t bytes) {
      EXPECT_EQ(group.counts(op).calls, calls) << Name(op);
      EXPECT_EQ(group.counts(op).bytes, bytes) << Name(op);
      EXPECT_GT(group.counts(op).seconds, 0) << Name(op);
    };
    expect(CollectiveOp::kAllReduceSum, 2, 2 * 2 * 160 * 3 / 4);
    expect(CollectiveOp::kAllReduceMax, 1, 2 * 48 * 3 / 4);
    expect(CollectiveOp::kBroadcast, 1, 160 * 3 / 4);
    expect(CollectiveOp::kBarrier, 1, 0);
    expect(CollectiveOp::kAllGather, 1, 160 * 3 / 4);
    expect(CollectiveOp::kReduceScatterSum, 1, 160 * 3 / 4);
    expect(CollectiveOp::kAllToAll, 1, (6 - group.rank()) * 8);
    expect(CollectiveOp::kSend, 1, 160);
    expect(CollectiveOp::kReceive, 1, 0);
    expect(CollectiveOp::kWaitSend, 1, 0);
    expect(CollectiveOp::kSendReceive, 1, 40);
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Counts, OfARankAloneHaveNoBytes) {
  LocalWorld world(1);
  const auto group = world.world(0).Everyone();
  std::vector<float> data(40);
  (*group)->AllReduceSum(View(data));
  (*group)->SendReceive(View(data, 0, 20), 0, View(data, 20, 20), 0);
  EXPECT_EQ((*group)->counts(CollectiveOp::kAllReduceSum).bytes, 0);
  EXPECT_EQ((*group)->counts(CollectiveOp::kSendReceive).bytes, 0);
}

TEST(Counts, AllocateNothing) {
  LocalWorld world(1);
  const auto group = world.world(0).Everyone();
  std::vector<float> all(40), other(40);
  const std::vector<int64_t> rows = {5};
  const int64_t before = testing::Allocations();
  for (int i = 0; i < 1000; ++i) {
    (*group)->AllReduceSum(View(all));
    (*group)->AllGather(View(all), View(all));
    (*group)->AllToAll(View(all), rows, View(other), rows);
    (*group)->SendReceive(View(all), 0, View(other), 0);
    (*group)->Barrier();
  }
  EXPECT_EQ(testing::Allocations(), before);
}

TEST(FlightRecorder, KeepsTheLastOperationsOfTheGroupInOrder) {
  std::array<std::vector<FlightRecord>, 2> records;
  const auto errors = RunWorlds(2, [&](CollectiveWorld& world) {
    const auto group = world.Group("data", {1, 0});
    std::vector<float> data(10);
    for (int i = 0; i < 300; ++i) (*group)->AllReduceSum(View(data));
    if (world.rank() == 0) {
      (*group)->WaitSend((*group)->PostSend(View(data), 0));
    } else {
      (*group)->Receive(View(data), 1);
    }
    (*group)->Broadcast(View(data), 0);
    EXPECT_EQ((*group)->recorder().group(), absl::StrCat("group data, rank ", 1 - world.rank(),
                                                         " of 2 (world rank ", world.rank(), ")"));
    records[size_t(world.rank())] = (*group)->recorder().Records();
  });
  EXPECT_THAT(errors, Each(""));
  for (const auto& rank : records) {
    ASSERT_EQ(rank.size(), FlightRecorder::kCapacity);
    for (const FlightRecord& record : rank) {
      EXPECT_LE(record.entered, record.left);
      EXPECT_LT(record.left, absl::InfiniteFuture());
    }
    EXPECT_EQ(rank.back().op, CollectiveOp::kBroadcast);
    EXPECT_EQ(rank.back().sequence, 301);
    EXPECT_EQ(rank.back().bytes, 40);
    EXPECT_EQ(rank.back().from, 1);  // World rank of the group's rank 0.
  }
  EXPECT_EQ(records[0].front().sequence, 300 - 256 + 3 + 1);
  EXPECT_EQ(records[1].front().sequence, 300 - 256 + 2 + 1);
  const FlightRecord& send = records[0][253];
  EXPECT_EQ(send.op, CollectiveOp::kSend);
  EXPECT_EQ(send.to, 1);
  EXPECT_EQ(send.sequence, 1);
  EXPECT_EQ(records[0][254].op, CollectiveOp::kWaitSend);
  EXPECT_EQ(records[1][254].op, CollectiveOp::kReceive);
  EXPECT_EQ(records[1][254].from, 0);
}

TEST(FlightRecorder, TextShowsWhatWasNotLeft) {
  FlightRecorder recorder("group data");
  const absl::Time t = absl::FromUnixMillis(1'700'000'000'123);
  const uint64_t gather =
      recorder.Enter({.op = CollectiveOp::kAllGather, .sequence = 7, .bytes = 4096, .entered = t});
  recorder.Leave(gather, t + absl::Milliseconds(2));
  recorder.Enter({.op = CollectiveOp::kSendReceive,
                  .sequence = 3,
                  .bytes = 8,
                  .to = 2,
                  .from = 0,
                  .entered = t + absl::Milliseconds(5)});
  const std::vector<FlightRecord> records = recorder.Records();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(ToString(records[0]),
            "all_gather 7, 4096 bytes, entered 2023-11-14T22:13:20.123Z, left after 2ms");
  EXPECT_EQ(ToString(records[1]),
            "send_receive 3 to 2 from 0, 8 bytes, entered 2023-11-14T22:13:20.128Z, not left");
}

TEST(FlightRecorder, OperationsMayEndAfterLaterOnesAndAfterTheyAreForgotten) {
  FlightRecorder recorder("group data");
  const uint64_t first = recorder.Enter({.sequence = 1}), second = recorder.Enter({.sequence = 2});
  recorder.Leave(second, absl::UnixEpoch());
  EXPECT_EQ(recorder.Records()[0].left, absl::InfiniteFuture());
  EXPECT_EQ(recorder.Records()[1].left, absl::UnixEpoch());
  for (size_t i = 0; i < FlightRecorder::kCapacity; ++i) recorder.Enter({.sequence = 3});
  recorder.Leave(first, absl::UnixEpoch());
  for (const FlightRecord& later : recorder.Records()) {
    EXPECT_EQ(later.left, absl::InfiniteFuture()) << "that of another in its place";
  }
}

TEST(FlightRecorder, CanBeReadWhileItIsWritten) {
  FlightRecorder recorder("group data");
  std::atomic<bool> done = false;
  std::thread watchdog([&] {
    while (!done) {
      int64_t last = 0;
      for (const FlightRecord& record : recorder.Records()) {
        EXPECT_TRUE(last == 0 || record.sequence == last + 1) << last;
        last = record.sequence;
      }
    }
  });
  for (int64_t i = 1; i <= 20'000; ++i) {
    recorder.Leave(recorder.Enter({.sequence = i}), absl::UnixEpoch());
  }
  done = true;
  watchdog.join();
}

}  // namespace
}  // namespace trainyard
