// A rank's threads run on its processors, and on no other.

#include "worker/trainer/affinity.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace trainyard {
namespace {

std::vector<int64_t> Processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(::sched_getaffinity(0, sizeof(set), &set), 0);
  std::vector<int64_t> processors;
  for (int64_t i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(size_t(i), &set)) processors.push_back(i);
  }
  return processors;
}

TEST(Affinity, ThreadsThatAreStartedLaterInheritIt) {
  const std::vector<int64_t> usable = Processors();
  ASSERT_FALSE(usable.empty());
  std::vector<int64_t> own, inherited;
  std::thread([&] {
    ASSERT_TRUE(RunOnProcessors({usable.back()}).ok());
    own = Processors();
    std::thread([&] { inherited = Processors(); }).join();
  }).join();
  EXPECT_EQ(own, std::vector<int64_t>{usable.back()});
  EXPECT_EQ(inherited, own);
  EXPECT_EQ(Processors(), usable);
}

TEST(Affinity, ProcessorsThatCannotBeAreRefusedAndChangeNothing) {
  const std::vector<int64_t> usable = Processors();
  EXPECT_EQ(RunOnProcessors({-1}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RunOnProcessors({CPU_SETSIZE}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RunOnProcessors({}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Processors(), usable);
}

}  // namespace
}  // namespace trainyard
