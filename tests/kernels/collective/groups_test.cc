// Proves that groups of one world do not disturb each other: each rank is in several at once, on
// threads of their own, with the same members and with others, in any order of members.

#include "tests/kernels/collective/worlds.h"

namespace trainyard {
namespace {

using testing::Data;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::Kind;
using testing::RunWorlds;
using testing::SameBits;
using testing::SumOverRanks;
using testing::View;

class GroupsTest : public testing::WorldsTest {
 protected:
  void Run(const std::function<void(CollectiveWorld&)>& f) {
    EXPECT_THAT(RunWorlds(worlds(), f), Each(""));
  }
};

std::unique_ptr<Collective> Join(CollectiveWorld& world, const std::string& name,
                                 const std::vector<int>& members) {
  auto group = world.Group(name, members);
  CHECK(group.ok()) << group.status();
  return *std::move(group);
}

// A mix of operations whose results depend on the members and on `seed`.
void Work(Collective& group, int seed) {
  const int n = group.size();
  const int next = (group.rank() + 1) % n, previous = (group.rank() + n - 1) % n;
  const auto part = [&](int rank, int round) {
    return Data<float>(37 * n, 1000 * seed + 100 * group.members()[size_t(rank)] + round);
  };
  for (int round = 0; round < 30; ++round) {
    const auto sum = SumOverRanks<float>(n, [&](int rank) { return part(rank, round); });
    std::vector<float> data = part(group.rank(), round), received(data.size());
    group.SendReceive(View(data), next, View(received), previous);
    ASSERT_TRUE(SameBits(received, part(previous, round))) << group.name() << " round " << round;
    std::vector<float> scattered(37), gathered(data.size());
    group.ReduceScatterSum(View(data), View(scattered));
    group.AllGather(View(scattered), View(gathered));
    ASSERT_TRUE(SameBits(gathered, sum)) << group.name() << " round " << round;
    group.AllReduceSum(View(data));
    ASSERT_TRUE(SameBits(data, sum)) << group.name() << " round " << round;
    if (round >= n) continue;
    std::vector<float> from_root = part(group.rank(), round);
    group.Broadcast(View(from_root), round);
    ASSERT_TRUE(SameBits(from_root, part(round, round))) << group.name() << " root " << round;
  }
}

TEST_P(GroupsTest, OfTheSameMembersRunSideBySide) {
  Run([](CollectiveWorld& world) {
    const auto a = Join(world, "a", {0, 1, 2, 3}), b = Join(world, "b", {0, 1, 2, 3}),
               c = Join(world, "c", {2, 0, 3, 1});
    std::thread with_a([&] { Work(*a, 1); }), with_b([&] { Work(*b, 2); });
    Work(*c, 3);
    with_a.join();
    with_b.join();
  });
}

TEST_P(GroupsTest, OfRowsAndColumnsOfAMeshRunSideBySide) {
  Run([](CollectiveWorld& world) {
    const int row = world.rank() / 2, column = world.rank() % 2;
    const auto tensor = Join(world, "tensor", {2 * row, 2 * row + 1});
    const auto data = Join(world, "data", {column, column + 2});
    const auto alone = Join(world, "pipeline", {world.rank()});
    EXPECT_EQ(tensor->rank(), column);
    EXPECT_EQ(data->rank(), row);
    EXPECT_THAT(data->members(), ::testing::ElementsAre(column, column + 2));
    std::thread with_tensor([&] { Work(*tensor, 1); }), with_data([&] { Work(*data, 2); });
    Work(*alone, 3);
    with_tensor.join();
    with_data.join();
  });
}

TEST_P(GroupsTest, MayEndAndBeMadeAgainWhileAnotherWorks) {
  Run([](CollectiveWorld& world) {
    const auto steady = Join(world, "steady", {0, 1, 2, 3});
    std::thread working([&] { Work(*steady, 1); });
    // NCCL's may only be made while the others rest (kernels/collective/nccl.h).
    if (std::get<0>(GetParam()) == Kind::kNccl) working.join();
    for (int round = 0; round < 5; ++round) Work(*Join(world, "again", {3, 2, 1, 0}), round);
    if (working.joinable()) working.join();
  });
}

TEST_P(GroupsTest, MembersThatDisagreeAreToldSo) {
  std::array<absl::Status, 4> status;
  std::atomic<int> joined = 0;
  Run([&](CollectiveWorld& world) {
    const auto join = [&](std::vector<int> members) {
      status[size_t(world.rank())] = world.Group("data", members).status();
      ++joined;
    };
    if (world.rank() == 1) {
      // Joining a local group does not wait, so rank 0 is first there and the one not told.
      while (std::get<0>(GetParam()) == Kind::kLocal && joined < 1) std::this_thread::yield();
      join({1, 0});
    } else if (world.rank() == 0) {
      join({0, 1});
    }
  });
  if (std::get<0>(GetParam()) == Kind::kNccl) {  // They never meet.
    EXPECT_EQ(status[1].code(), absl::StatusCode::kUnavailable) << status[1];
    EXPECT_THAT(std::string(status[1].message()), HasSubstr("no word from all ranks within"));
    return;
  }
  EXPECT_EQ(status[1].code(), absl::StatusCode::kFailedPrecondition) << status[1];
  EXPECT_THAT(std::string(status[1].message()), HasSubstr("data {1,0}"));
}

INSTANTIATE_TEST_SUITE_P(FourRanks, GroupsTest,
                         ::testing::Combine(testing::EachTestedKind(), ::testing::Values(4)),
                         testing::NameOfWorld);

}  // namespace
}  // namespace trainyard
