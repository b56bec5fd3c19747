// Proves that NCCL's operations are ordered on the device, where the host goes on at once, and that
// what fails there is noted before anybody can take what came of it for a result: a peer that never
// comes, one that dies. Streams do nothing here before somebody waits for it, so that an order
// which no event asks for is not kept by chance.

#include "kernels/collective/nccl.h"

#include <atomic>
#include <cmath>
#include <functional>
#include <future>

#include "kernels/cuda/cuda.h"
#include "tests/kernels/collective/worlds.h"
#include "tests/testing/cuda_emulation/nccl.h"
#include "tests/testing/cuda_emulation/streams.h"
#include "tests/testing/wall_clock.h"

namespace trainyard {
namespace {

using ::testing::HasSubstr;

const Backend& Device() { return **CudaBackend(); }

// What a rank has.
struct Rank {
  CollectiveWorld& world;
  GroupActivity& activity;
  Collective& group;
  Exec exec;
  Buffer memory = *Device().Allocate(4 * sizeof(double));

  // Element i of the device's memory.
  Tensor element(int i) const {
    return Tensor{{memory.data() + size_t(i) * sizeof(double), DType::kF64, Shape{1}}};
  }
  void Write(int i, double value) const {
    Device().CopyToDevice(exec, element(i).data, &value, sizeof(value));
  }
  double Read(int i) const {
    double value = 0;
    Device().CopyToHost(exec, &value, element(i).data, sizeof(value));
    return value;
  }
  // On the device.
  void Copy(int from, int to) const {
    cudaMemcpyAsync(element(to).data, element(from).data, sizeof(double), cudaMemcpyDeviceToDevice,
                    static_cast<cudaStream_t>(exec.stream));
  }
};

class NcclTest : public ::testing::Test {
 protected:
  NcclTest() { nccl_emulation::TellPeers(true); }

  // Of two ranks, which have exchanged something in every way: nobody has to connect any more.
  std::vector<std::string> Run(absl::Duration timeout, const std::function<void(Rank&)>& f) {
    testing::MemoryRendezvous rendezvous;
    std::vector<std::unique_ptr<CollectiveWorld>> ranks;
    std::vector<CollectiveWorld*> worlds;
    for (int i = 0; i < 2; ++i) {
      ranks.push_back(CreateNcclWorld({.rank = i, .size = 2, .timeout = timeout}, rendezvous));
      ranks.back()->CountIn(activity_[size_t(i)]);
      worlds.push_back(ranks.back().get());
    }
    return testing::RunWorlds(worlds, [&](CollectiveWorld& world) {
      const auto group = *world.Group("data", {0, 1});
      Rank rank{world, activity_[size_t(world.rank())], *group, Device().NewExec(1)};
      group->Follow(Device(), rank.exec);
      group->Barrier();
      const SendHandle sent = group->PostSend(rank.element(0), 1 - group->rank());
      group->Receive(rank.element(1), 1 - group->rank());
      group->WaitSend(sent);
      rank.Read(0);
      group->Check();
      group->Barrier();
      f(rank);
      group->Unfollow(rank.exec);
    });
  }

  const cuda_emulation::Late late_;
  std::array<GroupActivity, 2> activity_;
};

void ExpectNoErrors(const std::vector<std::string>& errors) {
  EXPECT_THAT(errors, ::testing::Each(""));
}

TEST_F(NcclTest, AnOperationComesAfterWhatMadeItsDataAndBeforeWhatUsesItsResult) {
  // Whoever is waited for first: the group's stream, by the watchdog, or what follows it.
  for (const bool group_first : {true, false}) {
    ExpectNoErrors(Run(absl::Minutes(1), [&](Rank& rank) {
      const uint64_t done = rank.activity.done;
      rank.Write(0, 1 + rank.world.rank());
      rank.group.AllReduceSum(rank.element(0));
      while (group_first && rank.activity.done == done) std::this_thread::yield();
      rank.Copy(0, 1);
      rank.Write(0, 10);
      EXPECT_EQ(rank.Read(1), 3);
      EXPECT_EQ(rank.Read(0), 10);
      rank.group.Check();
    }));
  }
}

TEST_F(NcclTest, MemoryOfAMessageMayBeWrittenToOnceItsSendIsWaitedFor) {
  ExpectNoErrors(Run(absl::Minutes(1), [](Rank& rank) {
    if (rank.world.rank() == 0) {
      rank.Write(0, 5);
      rank.group.WaitSend(rank.group.PostSend(rank.element(0), 1));
      rank.Write(0, 6);
      EXPECT_EQ(rank.Read(0), 6);
    } else {
      rank.group.Receive(rank.element(0), 0);
      rank.Copy(0, 1);
      EXPECT_EQ(rank.Read(1), 5);
    }
    rank.group.Check();
  }));
}

TEST_F(NcclTest, TheHostGoesOnAndAnOperationIsUnderWayUntilTheDeviceHasDoneIt) {
  std::promise<void> looked;
  ExpectNoErrors(Run(absl::Minutes(1), [&](Rank& rank) {
    if (rank.world.rank() == 1) looked.get_future().wait();
    const uint64_t done = rank.activity.done;
    rank.group.AllReduceSum(rank.element(0));
    if (rank.world.rank() == 0) {
      while (rank.activity.under_way == 0) std::this_thread::yield();  // Seen by the watchdog.
      rank.group.Check();
      EXPECT_EQ(rank.activity.done, done);
      EXPECT_EQ(rank.group.recorder().Records().back().left, absl::InfiniteFuture());
      EXPECT_EQ(rank.group.counts(CollectiveOp::kAllReduceSum).calls, 1);
      EXPECT_EQ(rank.group.counts(CollectiveOp::kAllReduceSum).seconds, 0);
      looked.set_value();
    }
    rank.Read(0);
    rank.group.Check();
    EXPECT_EQ(rank.activity.under_way, 0);
    EXPECT_EQ(rank.activity.done, done + 1);
    EXPECT_LT(rank.group.recorder().Records().back().left, absl::InfiniteFuture());
    EXPECT_GT(rank.group.counts(CollectiveOp::kAllReduceSum).seconds, 0);
  }));
}

// What rank 0 is told that has read what came of an operation that rank 1 did not take part in, and
// ended when it was `under_way` on the device or later.
void ExpectFailure(Rank& rank, std::promise<void>& under_way, const std::string& why,
                   DeviceError::Kind kind = DeviceError::Kind::kPeerLost) {
  const uint64_t done = rank.activity.done;
  rank.Write(0, 1);
  rank.group.AllReduceSum(rank.element(0));
  rank.Copy(0, 1);
  while (rank.activity.under_way == 0) std::this_thread::yield();
  under_way.set_value();
  EXPECT_TRUE(std::isnan(rank.Read(1)));  // What the abort left behind.
  const auto error = [kind](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const DeviceError& error) {
      EXPECT_EQ(error.kind, kind);
      return error.what();
    }
    return "";
  };
  const std::string what = "all_reduce_sum 3 of group data, rank 0 of 2 (world rank 0): " + why;
  EXPECT_THAT(error([&] { rank.group.Check(); }), ::testing::StartsWith(what));
  EXPECT_THAT(error([&] { rank.group.Barrier(); }), HasSubstr(what));
  EXPECT_EQ(rank.activity.under_way, 0);
  EXPECT_EQ(rank.activity.done, done + 2) << "what fails has ended once, too";
  const std::vector<FlightRecord> records = rank.group.recorder().Records();
  EXPECT_EQ(records[records.size() - 2].left, absl::InfiniteFuture());
}

// Even where the wall clock goes back meanwhile, so that it would be a day until it is as late.
TEST_F(NcclTest, APeerThatNeverComesIsAnErrorThatNamesTheOperation) {
  std::promise<void> under_way, over;
  nccl_emulation::TellPeers(false);
  ExpectNoErrors(Run(absl::Seconds(2), [&](Rank& rank) {
    if (rank.world.rank() == 1) {
      under_way.get_future().wait();
      const WallClockJump jump(-absl::Hours(24));
      return over.get_future().wait();
    }
    ExpectFailure(rank, under_way, "no word from all ranks within 2s");
    over.set_value();
  }));
}

// A connection that breaks is a system error, too: who hears of it is well. What its own device did
// is nobody else's.
TEST_F(NcclTest, APeerThatDiesIsAnErrorThatNamesTheOperation) {
  struct Told {
    ncclResult_t error;
    const char* text;
    DeviceError::Kind kind;
  };
  for (const Told& told :
       {Told{ncclRemoteError, "remote process exited or there was a network error",
             DeviceError::Kind::kPeerLost},
        Told{ncclSystemError, "unhandled system error", DeviceError::Kind::kPeerLost},
        Told{ncclUnhandledCudaError, "unhandled cuda error", DeviceError::Kind::kDevice}}) {
    SCOPED_TRACE(told.text);
    nccl_emulation::TellPeers(true, told.error);
    std::promise<void> under_way, over;
    ExpectNoErrors(Run(absl::Minutes(1), [&](Rank& rank) {
      if (rank.world.rank() == 1) {
        under_way.get_future().wait();
        rank.world.Abort();
        return over.get_future().wait();
      }
      ExpectFailure(rank, under_way, absl::StrCat("NCCL: ", told.text), told.kind);
      over.set_value();
    }));
  }
}

// Whoever sets the clock of a machine must not end the jobs on it.
TEST_F(NcclTest, AnOperationUnderWayIsNotLateBecauseTheWallClockJumps) {
  std::promise<void> jumped;
  ExpectNoErrors(Run(absl::Minutes(1), [&](Rank& rank) {
    if (rank.world.rank() == 1) jumped.get_future().wait();
    rank.Write(0, 1);
    rank.group.AllReduceSum(rank.element(0));
    if (rank.world.rank() == 0) {
      while (rank.activity.under_way == 0) std::this_thread::yield();
      const WallClockJump jump(absl::Hours(24));
      EXPECT_NO_THROW(rank.group.Check());  // As the watchdog does every few milliseconds.
      jumped.set_value();
    }
    EXPECT_EQ(rank.Read(0), 2);
    rank.group.Check();
  }));
}

// Its deadline counts from when the device has come to it.
TEST_F(NcclTest, AnOperationBehindOtherWorkOfItsOwnRankIsNotLate) {
  ExpectNoErrors(Run(absl::Seconds(2), [](Rank& rank) {
    cudaStream_t stream = static_cast<cudaStream_t>(rank.exec.stream);
    std::atomic<bool> done = false;
    cuda_emulation::Give(cuda_emulation::LockDevice(), stream,
                         {.run = [] {},
                          .ready = [&] { return done.load(); },
                          .needs = [] { return std::vector<cudaStream_t>(); }});
    rank.group.AllReduceSum(rank.element(0));
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    EXPECT_EQ(rank.activity.under_way, 0);
    rank.group.Check();
    done = true;
    rank.Read(0);
    rank.group.Check();
  }));
}

}  // namespace
}  // namespace trainyard
