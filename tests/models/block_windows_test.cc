// Proves the two windows of ZeRO FULL: the next block is gathered ahead, and nothing twice; and the
// stream on which that happens: every posted call is done in order.
#include "models/program/block_windows.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "models/program/communication_stream.h"

namespace trainyard::testing {
namespace {

// Blocks 0, 1, 2, 3 in windows 0, 1, 0, 1; block 4 is not gathered.
class BlockWindowsTest : public ::testing::Test {
 protected:
  BlockWindowsTest() {
    for (int block = 0; block < 4; ++block) windows_.Add(block, block % 2);
  }

  std::vector<int> gathered_;  // So far.
  BlockWindows windows_{[this](int block) { gathered_.push_back(block); }};
};

TEST_F(BlockWindowsTest, TheNextBlockIsGatheredAheadAndOnce) {
  windows_.Fetch(0, 1);
  EXPECT_EQ(gathered_, (std::vector<int>{0, 1}));
  windows_.Fetch(1, 2);
  EXPECT_EQ(gathered_, (std::vector<int>{0, 1, 2}));
}

// Where forward turns into backward, both windows hold what is wanted.
TEST_F(BlockWindowsTest, WhatIsWholeIsNotGatheredAgain) {
  for (auto [block, ahead] : {std::pair(0, 1), {1, 2}, {2, 3}, {3, 3}, {3, 2}}) {
    windows_.Fetch(block, ahead);
  }
  EXPECT_EQ(gathered_, (std::vector<int>{0, 1, 2, 3}));
  windows_.Fetch(2, 1);
  EXPECT_EQ(gathered_, (std::vector<int>{0, 1, 2, 3, 1}));
}

TEST_F(BlockWindowsTest, ABlockOfTheSameWindowWaitsItsTurn) {
  windows_.Fetch(0, 2);
  windows_.Fetch(0, BlockWindows::kNoBlock);  // Still there.
  EXPECT_EQ(gathered_, (std::vector<int>{0}));
}

TEST_F(BlockWindowsTest, WhatIsWholeAlwaysTakesNoWindow) {
  windows_.Fetch(0, 4);
  windows_.Fetch(4, 1);
  windows_.Fetch(0, 1);
  EXPECT_EQ(gathered_, (std::vector<int>{0, 1}));
}

TEST_F(BlockWindowsTest, NothingIsWholeOnceTheWeightsHaveChanged) {
  windows_.Fetch(0, 1);
  windows_.Forget();
  windows_.Fetch(1, BlockWindows::kNoBlock);
  windows_.Forget(0);
  EXPECT_EQ(gathered_, (std::vector<int>{0, 1, 1, 0}));
}

TEST(CommunicationStreamTest, MoreCallsThanFitRunInTheirOrder) {
  const Exec exec;
  CommunicationStream stream(3, CpuBackend(), exec);
  std::vector<int> done;
  std::vector<Call> calls;
  for (int i = 0; i < 100; ++i) calls.push_back([&done, i](Exec&) { done.push_back(i); });
  for (const Call& call : calls) stream.Post(call);
  stream.WaitForAll();
  ASSERT_EQ(done.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(done[size_t(i)], i);
}

TEST(CommunicationStreamTest, AFailureIsThrownByTheWaitForItOrALaterCall) {
  const Exec exec;
  CommunicationStream stream(4, CpuBackend(), exec);
  const Call fine = [](Exec&) {}, fails = [](Exec&) { throw std::runtime_error("lost"); };
  const auto first = stream.Post(fine), second = stream.Post(fails);
  stream.Post(fine);
  stream.Wait(first);
  EXPECT_THROW(stream.Wait(second), std::runtime_error);
}

}  // namespace
}  // namespace trainyard::testing
