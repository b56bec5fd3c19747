// Proves that whether a rank waits for its peers can be seen from outside, while it does and no
// longer, also where the operation fails, and that what it was at is known afterwards.

#include <gmock/gmock.h>

#include <atomic>

#include "tests/kernels/collective/worlds.h"

namespace trainyard {
namespace {

class ActivityTest : public testing::WorldsTest {};

TEST_P(ActivityTest, ARankThatWaitsForItsPeersIsSeenToDoSo) {
  std::vector<GroupActivity> activities(worlds().size());
  std::atomic<int> passed = 0;
  const auto errors = testing::RunWorlds(worlds(), [&](CollectiveWorld& world) {
    GroupActivity& mine = activities[size_t(world.rank())];
    world.CountIn(mine);
    const auto group = *world.Everyone();
    if (world.rank() == 0) {  // The others are to wait for it.
      for (int i = 1; i < world.size(); ++i) {
        while (activities[size_t(i)].under_way == 0) std::this_thread::yield();
      }
      EXPECT_EQ(mine.under_way, 0);
    }
    group->Barrier();
    EXPECT_EQ(mine.under_way, 0);
    EXPECT_EQ(mine.done, 1u);
    ++passed;
    while (passed < world.size()) std::this_thread::yield();
    group->Abort();
    EXPECT_THROW(group->Barrier(), DeviceError);
    EXPECT_EQ(mine.under_way, 0) << "an operation that fails has ended, too";
  });
  EXPECT_THAT(errors, ::testing::Each(""));
  // What is said of a failure once its groups are gone.
  for (const GroupActivity& activity : activities) {
    const auto groups = activity.groups();
    ASSERT_EQ(groups.size(), 1u);
    const std::vector<FlightRecord> records = groups[0]->Records();
    ASSERT_EQ(records.size(), 2u);
    EXPECT_LT(records[0].left, absl::InfiniteFuture());
    EXPECT_EQ(records[1].sequence, 2);
    EXPECT_EQ(records[1].left, absl::InfiniteFuture());
  }
}
INSTANTIATE_TEST_SUITE_P(Worlds, ActivityTest,
                         ::testing::Combine(testing::EachTestedKind(), ::testing::Values(1, 3)),
                         testing::NameOfWorld);

}  // namespace
}  // namespace trainyard
