// Proves that NCCL's operations are ordered on the device, where the host goes on at once, and that
// what fails there is noted before anybody can take what came of it for a result: a peer that never
// comes, one that dies. Also that ranks connect before anything runs, and not beside it. Streams do
// nothing here before somebody waits for it, so that an order which no event asks for is not kept
// by chance.

#include "kernels/collective/nccl.h"

#include <atomic>
#include <cmath>
#include <functional>
#include <future>

#include "kernels/cuda/cuda.h"
#include "tests/kernels/collective/carried.h"
#include "tests/kernels/collective/worlds.h"
#include "tests/testing/cuda_emulation/nccl.h"
#include "tests/testing/cuda_emulation/streams.h"
#include "tests/testing/wall_clock.h"

namespace trainyard {
namespace {

using ::testing::AllOf;
using testing::EveryPair;
using ::testing::HasSubstr;

// What a kernel is said to have left.
constexpr char kLastWords[] = ": element 0 of -1";

const Backend& Device() { return **CudaBackend(); }

double ReadOf(const Exec& exec, const Tensor& element) {
  double value = 0;
  Device().CopyToHost(exec, &value, element.data, sizeof(value));
  return value;
}

// Runs f as each rank of a world of two. Each has a device of its own, unless `options` has none.
std::vector<std::string> RunTwo(NcclOptions options,
                                const std::function<void(CollectiveWorld&)>& f) {
  testing::MemoryRendezvous rendezvous;
  std::vector<std::unique_ptr<CollectiveWorld>> ranks;
  std::vector<CollectiveWorld*> worlds;
  options.size = 2;
  options.with_failure = [](const std::string& error) { return error + kLastWords; };
  for (int i = 0; i < 2; ++i) {
    options.rank = i;
    if (options.device >= 0) options.device = i;
    ranks.push_back(CreateNcclWorld(options, rendezvous));
    worlds.push_back(ranks.back().get());
  }
  return testing::RunWorlds(worlds, f);
}

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
  double Read(int i) const { return ReadOf(exec, element(i)); }
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
    return RunTwo({.timeout = timeout}, [&](CollectiveWorld& world) {
      GroupActivity& activity = activity_[size_t(world.rank())];
      world.CountIn(activity);
      const auto group = *world.Group("data", {0, 1});
      CHECK(group->Connect(EveryPair(*group)).ok());
      Rank rank{world, activity, *group, Device().NewExec(1)};
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
  const bool mine = kind == DeviceError::Kind::kDevice;
  const std::string what = "all_reduce_sum 3 of group data, rank 0 of 2 (world rank 0): " + why;
  const std::string checked = error([&] { rank.group.Check(); });
  EXPECT_THAT(checked, ::testing::StartsWith(what));
  EXPECT_EQ(checked.ends_with(kLastWords), mine) << checked;  // Once, and of this rank's device.
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

// Bug it must catch: ranks connect at their first message or exchange, beside whatever runs. On a
// GPU both may then wait for ever. The emulation ends the program.
TEST_F(NcclTest, MessagesAndExchangesTravelWhileAnotherGroupWaitsForARank) {
  ExpectNoErrors(Run(absl::Minutes(1), [](Rank& rank) {
    const int me = rank.world.rank(), other = 1 - me;
    const auto stages = *rank.world.Group("stages", {0, 1});
    CHECK(stages->Connect(EveryPair(*stages)).ok());
    const Exec beside = Device().NewExec(1);
    stages->Follow(Device(), beside);
    const double value = 10 + me;
    Device().CopyToDevice(beside, rank.element(1).data, &value, sizeof(value));
    rank.Write(0, 1 + me);
    if (me == 0) {
      rank.group.AllReduceSum(rank.element(0));
      while (rank.activity.under_way == 0) std::this_thread::yield();
    }
    stages->SendReceive(rank.element(1), other, rank.element(2), other);
    const SendHandle sent = stages->PostSend(rank.element(1), other);
    stages->Receive(rank.element(3), other);
    stages->WaitSend(sent);
    EXPECT_EQ(ReadOf(beside, rank.element(2)), 10 + other);
    EXPECT_EQ(ReadOf(beside, rank.element(3)), 10 + other);
    if (me == 1) rank.group.AllReduceSum(rank.element(0));
    EXPECT_EQ(rank.Read(0), 3);
    rank.group.Check();
    stages->Unfollow(beside);
  }));
}

class NcclDeathTest : public NcclTest {
 protected:
  NcclDeathTest() { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

TEST_F(NcclDeathTest, TheEmulationEndsTheProgramWhereRanksConnectBesideOtherWork) {
  using Connect = std::function<void(CollectiveWorld&, Collective&)>;
  const auto beside_a_sum = [this](const Connect& connect) {
    Run(absl::Minutes(1), [&](Rank& rank) {
      const auto unconnected = *rank.world.Group("unconnected", {0, 1});
      unconnected->Follow(Device(), rank.exec);
      if (rank.world.rank() == 0) rank.group.AllReduceSum(rank.element(0));
      connect(rank.world, *unconnected);
    });
  };
  const std::string message = "makes or connects a communicator while another has work";
  const Connect makes = [](CollectiveWorld& world, Collective&) {
    world.Group("made", {0, 1}).status().IgnoreError();
  };
  const Connect tells = [](CollectiveWorld&, Collective& unconnected) {
    unconnected.Connect(EveryPair(unconnected)).IgnoreError();
  };
  const Connect uses = [](CollectiveWorld&, Collective& unconnected) { unconnected.Barrier(); };
  EXPECT_DEATH(beside_a_sum(makes), message);
  EXPECT_DEATH(beside_a_sum(tells), message);
  EXPECT_DEATH(beside_a_sum(uses), message);
}

TEST_F(NcclDeathTest, AMessageBetweenRanksThatAreNotConnectedEndsTheProgram) {
  const auto exchange = [](bool sends) {
    RunTwo({}, [&](CollectiveWorld& world) {
      const auto group = *world.Group("data", {0, 1});
      GroupActivity activity;
      Rank rank{world, activity, *group, Device().NewExec(1)};
      group->Follow(Device(), rank.exec);
      if (sends) {
        group->PostSend(rank.element(0), 1 - group->rank());
      } else {
        group->Receive(rank.element(0), 1 - group->rank());
      }
    });
  };
  EXPECT_DEATH(exchange(true), "send 1 to world rank . of group data.*not told of the pair");
  EXPECT_DEATH(exchange(false), "receive 1 from world rank . of group data.*not told of the pair");
}

// A rank with pairs and one without wait for it, and neither longer than the deadline.
TEST_F(NcclTest, ARankThatNeverConnectsIsAnErrorOfTheGroup) {
  for (const bool pairs : {true, false}) {
    SCOPED_TRACE(pairs);
    std::promise<void> over;
    ExpectNoErrors(RunTwo({.connect_timeout = absl::Seconds(2)}, [&](CollectiveWorld& world) {
      const auto group = *world.Group("data", {0, 1});
      if (world.rank() == 1) return over.get_future().wait();
      const absl::Status status = group->Connect(pairs ? EveryPair(*group) : Connections());
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr("group data: "), HasSubstr("no word from all ranks within 2s")));
      EXPECT_THROW(group->Check(), DeviceError);
      EXPECT_FALSE(world.Group("next", {0, 1}).ok());
      over.set_value();
    }));
  }
}

TEST_F(NcclTest, AnErrorOfCudaHasTheLastWordsOfTheKernelThatFailed) {
  ExpectNoErrors(RunTwo({.device = -1}, [](CollectiveWorld& world) {
    const absl::Status status = world.Group("data", {0, 1}).status();
    EXPECT_EQ(status.message(), absl::StrCat("group data: CUDA: invalid argument", kLastWords));
  }));
}

}  // namespace
}  // namespace trainyard
