// Proves that ids are unique, sort by age, and read back.

#include "controller/jobs/job_id.h"

#include <gtest/gtest.h>

namespace trainyard::controller {
namespace {

TEST(JobId, SpellsAndReads) {
  for (const uint64_t number :
       {uint64_t{0}, uint64_t{31}, uint64_t{1} << 49, uint64_t{123456789}}) {
    const std::string id = JobId(number);
    EXPECT_EQ(id.size(), 12u);
    EXPECT_EQ(JobNumber(id), number) << id;
  }
  for (int bits = 50; bits < 64; ++bits) {
    for (const uint64_t number : {uint64_t{1} << bits, ~uint64_t{0} >> (63 - bits)}) {
      EXPECT_EQ(JobNumber(JobId(number)), number) << JobId(number);
    }
  }
  for (const char* wrong : {"", "j-", "j-00000000u0", "x-0000000000", "j-00000000000",
                            "j-000000000", "j-g000000000000", "j-10000000000000"}) {
    EXPECT_FALSE(JobNumber(wrong).has_value()) << wrong;
  }
}

TEST(JobId, GrowsWithTimeAndWhenTheClockGoesBack) {
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  uint64_t last = 0;
  std::string last_id;
  for (int i = 0; i < 5000; ++i) {
    const uint64_t number = NextJobNumber(last, now - absl::Seconds(i));
    EXPECT_GT(number, last);
    EXPECT_GT(JobId(number), last_id);
    last = number;
    last_id = JobId(number);
  }
}

// Bug it must catch: from November 2054 on, the number had more bits than the id, and neither that
// job nor any later one was found by its id.
TEST(JobId, FindsJobsOfEveryYear) {
  uint64_t last = 0;
  std::string last_id;
  for (int year = 1970; year <= 2200; ++year) {
    for (const int month : {1, 11, 12}) {
      const absl::Time now =
          absl::FromCivil(absl::CivilSecond(year, month, 9), absl::UTCTimeZone());
      const uint64_t number = NextJobNumber(last, now);
      const std::string id = JobId(number);
      EXPECT_GT(number, last);
      EXPECT_EQ(JobNumber(id), number) << id << " of " << year;
      EXPECT_TRUE(id.size() > last_id.size() || id > last_id) << id << " of " << year;
      last = number;
      last_id = id;
    }
  }
  for (const absl::Time never : {absl::InfiniteFuture(), absl::InfinitePast()}) {
    const uint64_t number = NextJobNumber(last, never);
    EXPECT_GT(number, last);
    EXPECT_EQ(JobNumber(JobId(number)), number);
  }
}

}  // namespace
}  // namespace trainyard::controller
