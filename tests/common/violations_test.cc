// Proves that violations survive the trip through a Status, and that suggestions are near or
// absent.

#include "common/violations.h"

#include <gmock/gmock.h>

namespace trainyard {
namespace {

TEST(Violations, SurviveTheTripThroughAStatus) {
  Violations violations;
  EXPECT_TRUE(violations.ToStatus().ok());
  violations.Add("batch.global", "a multiple of 4", 6, 8);
  violations.Add(
      {.field = "name", .wanted = "a name", .found = "\"\xff\"", .note = "say \n\x1e which"});
  violations.Add("steps", "x > 0", 0);
  const absl::Status status = violations.ToStatus();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "batch.global: wanted a multiple of 4, found 6; nearest 8\n"
            "name: wanted a name, found \"\xff\"; say \n\x1e which\nsteps: wanted x > 0, found 0");
  const auto list = Violations::FromStatus(status);
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].field, "batch.global");
  EXPECT_EQ(list[0].nearest, "8");
  EXPECT_EQ(list[1].note, "say \n\x1e which");
  EXPECT_EQ(list[2].Description(), "wanted x > 0, found 0");
}

TEST(Violations, CheckAddsWhatIsNotLegal) {
  Violations violations;
  EXPECT_TRUE(violations.Check("steps", int64_t{8}, {.most = 8}));
  EXPECT_FALSE(violations.Check("steps", int64_t{9}, {.most = 8}));
  EXPECT_FALSE(violations.Check("rate", 2.5, {.least = 0, .most = 1}));
  EXPECT_EQ(
      violations.ToStatus().message(),
      "steps: wanted 1 to 8, found 9; nearest 8\nrate: wanted 0 <= x <= 1, found 2.5; nearest 1");
}

TEST(Violations, AnotherStatusHoldsNone) {
  EXPECT_TRUE(Violations::FromStatus(absl::NotFoundError("x")).empty());
}

TEST(NearestMultiple, IsTheClosestOneInRange) {
  for (int64_t unit = 1; unit <= 7; ++unit) {
    for (int64_t most = 1; most <= 30; ++most) {
      for (int64_t value = -3; value <= 40; ++value) {
        const int64_t nearest = NearestMultiple(value, unit, most);
        ASSERT_EQ(nearest % unit, 0);
        ASSERT_GE(nearest, unit);
        ASSERT_LE(nearest, std::max(unit, most));
        for (int64_t other = unit; other <= most; other += unit) {
          ASSERT_LE(std::abs(nearest - value), std::abs(other - value))
              << value << " by " << unit << " up to " << most;
        }
      }
    }
  }
}

TEST(NearestName, SuggestsOnlyWhatIsNear) {
  EXPECT_EQ(NearestName("learning_rat", {"learning_rate", "weight_decay"}), "learning_rate");
  EXPECT_EQ(NearestName("stesp", {"steps", "seed"}), "steps");
  EXPECT_EQ(NearestName("colour", {"steps", "seed"}), "");
}

}  // namespace
}  // namespace trainyard
