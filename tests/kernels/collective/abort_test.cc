// Proves that an abort ends the ranks that wait, in whatever operation and group, that the error
// says where, and that what is destroyed half done takes its world with it.

#include "tests/kernels/collective/waiting_operations.h"
#include "tests/kernels/collective/worlds.h"

namespace trainyard {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::Kind;
using ::testing::Not;
using testing::RunRanks;
using testing::RunWorlds;
using testing::View;

// What a rank says that has lost another; NCCL does not know which. Gloo's may be one that ended
// because of it, where three are.
std::string Loss(Kind kind, const std::string& rank) {
  if (kind == Kind::kNccl) return "network error";
  if (kind == Kind::kGloo) return "lost world rank " + (rank == "2" ? "" : rank);
  return absl::StrCat("world rank ", rank.substr(0, 1), " has aborted");
}

class AbortTest : public ::testing::TestWithParam<Kind> {};

TEST_P(AbortTest, EndsTheRanksThatWaitInAnyOperationAndTheErrorNamesIt) {
  for (const testing::WaitingOperation& operation : testing::WaitingOperations()) {
    SCOPED_TRACE(operation.name);
    const auto threads = testing::NewThreads(GetParam(), 3);
    std::array<std::unique_ptr<Collective>, 3> groups;
    std::atomic<int> joined = 0, returned = 0;
    const auto errors = RunWorlds(threads->worlds(), [&](CollectiveWorld& world) {
      // In an order of its own, so that ranks in group and world differ.
      auto joining = world.Group("pipeline", {1, 0, 2});
      ASSERT_TRUE(joining.ok()) << joining.status();
      Collective& group = *(groups[size_t(world.rank())] = *std::move(joining));
      ++joined;
      if (world.rank() == 2) {
        while (joined < 3) std::this_thread::yield();
        for (int rank : {0, 1}) {
          while (!testing::Waits(*groups[size_t(rank)], operation.name) && returned == 0) {
            std::this_thread::yield();
          }
        }
        return group.Abort();
      }
      std::vector<double> all(3), other(3);
      operation.call(group, 2, View(all), View(other));
      ++returned;
    });
    EXPECT_EQ(returned, 0);
    // NCCL names what the device is at: the message itself.
    const bool is_message = GetParam() == Kind::kNccl && operation.name == "wait_send";
    const std::string named = is_message ? "send" : operation.name;
    for (int rank : {0, 1}) {
      EXPECT_THAT(errors[size_t(rank)], HasSubstr(named + " 1"));
      EXPECT_THAT(errors[size_t(rank)],
                  HasSubstr(absl::StrCat(" of group pipeline, rank ", 1 - rank,
                                         " of 3 (world rank ", rank, "): ")));
      EXPECT_THAT(errors[size_t(rank)], HasSubstr(Loss(GetParam(), "2")));
    }
  }
}

TEST_P(AbortTest, OfOneRankEndsTheOthersInTheMiddleOfASum) {
  for (int size : {1, 2, 5}) {
    const auto threads = testing::NewThreads(GetParam(), size);
    const auto errors = RunRanks(threads->worlds(), [&](Collective& group) {
      for (int round = 0;; ++round) {
        std::vector<float> data(50'000, 1);  // Dies when its rank unwinds: nobody may read it then.
        if (group.rank() == size - 1 && round == 20) group.Abort();
        group.AllReduceSum(View(data));
      }
    });
    EXPECT_THAT(errors, Each(Not("")));
  }
}

TEST_P(AbortTest, OfTheWorldEndsAllGroupsOnAllThreads) {
  const auto threads = testing::NewThreads(GetParam(), 2);
  std::atomic<int> waiting = 0;
  const auto errors = RunWorlds(threads->worlds(), [&](CollectiveWorld& world) {
    const auto first = world.Group("first", {0, 1}), second = world.Group("second", {0, 1});
    const auto wait = [&](Collective& group) {
      ++waiting;
      std::vector<double> data(3);
      group.Receive(View(data), 1 - group.rank());
    };
    std::string other_error;
    std::thread other([&] {
      try {
        wait(**second);
      } catch (const DeviceError& error) {
        other_error = error.what();
      }
    });
    if (world.rank() == 0) {
      while (waiting < 3) std::this_thread::yield();
      world.Abort();
      other.join();
    } else {
      EXPECT_THROW(wait(**first), DeviceError);
      other.join();
    }
    // NCCL's operations are the device's, and whoever waits for the device is told the world's
    // first failure.
    if (GetParam() == Kind::kNccl) {
      EXPECT_THAT(other_error,
                  AnyOf(HasSubstr("group second"), HasSubstr("group first"), "aborted"));
    } else {
      EXPECT_THAT(other_error, HasSubstr("group second"));
    }
    EXPECT_THROW((*first)->Barrier(), DeviceError);
    EXPECT_EQ(world.Group("third", {0, 1}).status().code(), absl::StatusCode::kUnavailable);
  });
  EXPECT_THAT(errors, Each(""));
}

// A chain of groups: each rank waits for the next, and the last ends.
TEST_P(AbortTest, TravelsThroughGroupsThatDoNotContainTheCulprit) {
  const auto threads = testing::NewThreads(GetParam(), 4);
  std::atomic<int> joined = 0;
  const auto errors = RunWorlds(threads->worlds(), [&](CollectiveWorld& world) {
    std::vector<absl::StatusOr<std::unique_ptr<Collective>>> groups;
    for (int first : {0, 1, 2}) {
      if (world.rank() != first && world.rank() != first + 1) continue;
      groups.push_back(world.Group("link", {first, first + 1}));
      ASSERT_TRUE(groups.back().ok()) << groups.back().status();
    }
    ++joined;
    while (joined < 4) std::this_thread::yield();
    if (world.rank() == 3) return world.Abort();
    (*groups.back())->Barrier();
  });
  for (int rank : {0, 1, 2}) {
    EXPECT_THAT(errors[size_t(rank)], HasSubstr("barrier 1 of group link, rank 0 of 2"));
  }
}

TEST_P(AbortTest, GroupThatEndsBeforeItsMessagesAreWaitedForEndsItsWorld) {
  const auto threads = testing::NewThreads(GetParam(), 2);
  const auto errors = RunWorlds(threads->worlds(), [&](CollectiveWorld& world) {
    const std::vector<double> data(3);
    auto group = world.Everyone();
    (*group)->Barrier();
    if (world.rank() == 0) {
      (*group)->PostSend(View(data), 1);
      group->reset();
      EXPECT_FALSE(world.Group("next", {0, 1}).ok());
    } else {
      (*group)->Barrier();
    }
  });
  EXPECT_THAT(errors[1], HasSubstr(Loss(GetParam(), "0 (")));
}

INSTANTIATE_TEST_SUITE_P(Implementations, AbortTest, testing::EachTestedKind(),
                         [](const auto& info) { return testing::NameOf(info.param); });

}  // namespace
}  // namespace trainyard
