// Proves that a gang ends for one reason, and that what each rank says each step reaches all.

#include "train/step/agree.h"

#include <gmock/gmock.h>

#include "tests/testing/ranks.h"
#include "train/step/step_runner.h"

namespace trainyard {
namespace {

TEST(AgreeOnStatus, GivesAllRanksTheErrorOfTheLowestThatHasOne) {
  testing::RunRanks(4, [](Collective& group) {
    absl::Status mine;
    if (group.rank() == 1) mine = absl::DataLossError("weights.bin is damaged");
    if (group.rank() == 3) mine = absl::InternalError("no");
    const absl::Status all = AgreeOnStatus(group, mine);
    EXPECT_EQ(all, absl::DataLossError(group.rank() == 1 ? "weights.bin is damaged"
                                                         : "rank 1: weights.bin is damaged"));
    EXPECT_TRUE(AgreeOnStatus(group, absl::OkStatus()).ok());
  });
}

TEST(BroadcastText, CarriesAnyBytesOfAnyLength) {
  testing::RunRanks(3, [](Collective& group) {
    for (const std::string& text :
         {std::string(), std::string("a\0b", 3), std::string(4096, 'x')}) {
      EXPECT_EQ(BroadcastText(group, group.rank() == 2 ? text : "mine", 2), text);
    }
  });
}

TEST(Agree, JoinsFlagsAndTheSlowestRanksTime) {
  testing::RunRanks(3, [](Collective& group) {
    const Agreement agreed = Agree(group, {.finite = group.rank() != 1,
                                           .stop = group.rank() == 2,
                                           .seconds = double(group.rank()) + 0.5});
    EXPECT_FALSE(agreed.finite);
    EXPECT_TRUE(agreed.stop);
    EXPECT_EQ(agreed.seconds, 2.5);
    const Agreement quiet = Agree(group, {});
    EXPECT_TRUE(quiet.finite);
    EXPECT_FALSE(quiet.stop);
  });
}

}  // namespace
}  // namespace trainyard
