// Proves the two windows of ZeRO FULL: a fetched block is whole, the next one is on its way,
// nothing is gathered twice, and every posted call is done in order.
#include "models/program/block_windows.h"

#include <vector>

#include "gtest/gtest.h"

namespace trainyard::testing {
namespace {

// Blocks 0, 1, 2, ... in windows 0, 1, 0, ...; each gathered by two calls that note it.
class BlockWindowsTest : public ::testing::Test {
 protected:
  BlockWindowsTest() {
    for (int block = 0; block < 4; ++block) {
      for (int part : {0, 1}) {
        windows_.Add(block, block % 2,
                     [this, block, part](Exec&) { gathered_.push_back(10 * block + part); });
      }
    }
  }

  // All gathers so far.
  std::vector<int> Gathered() {
    stream_.WaitForAll();
    return gathered_;
  }

  std::vector<int> gathered_;  // Written by the stream's thread.
  CommunicationStream stream_{4};
  BlockWindows windows_{stream_};
};

TEST_F(BlockWindowsTest, AFetchedBlockIsWholeWhenTheCallReturns) {
  for (int i = 0; i < 1000; ++i) {  // The other thread is rarely the faster one.
    windows_.Forget();
    windows_.Fetch(i % 4, BlockWindows::kNoBlock);
    ASSERT_EQ(gathered_.size(), size_t(2 * i + 2));
    ASSERT_EQ(gathered_.back(), 10 * (i % 4) + 1);
  }
}

TEST_F(BlockWindowsTest, TheNextBlockIsGatheredAheadAndOnce) {
  windows_.Fetch(0, 1);
  EXPECT_EQ(Gathered(), (std::vector<int>{0, 1, 10, 11}));
  windows_.Fetch(1, 2);
  EXPECT_EQ(Gathered(), (std::vector<int>{0, 1, 10, 11, 20, 21}));
}

// Where forward turns into backward, both windows hold what is wanted.
TEST_F(BlockWindowsTest, WhatIsWholeIsNotGatheredAgain) {
  for (auto [block, ahead] : {std::pair(0, 1), {1, 2}, {2, 3}, {3, 3}, {3, 2}}) {
    windows_.Fetch(block, ahead);
  }
  EXPECT_EQ(Gathered().size(), 8u);
  windows_.Fetch(2, 1);
  EXPECT_EQ(Gathered().back(), 11);
}

TEST_F(BlockWindowsTest, ABlockOfTheSameWindowWaitsItsTurn) {
  windows_.Fetch(0, 2);
  EXPECT_EQ(Gathered(), (std::vector<int>{0, 1}));
  windows_.Fetch(0, BlockWindows::kNoBlock);  // Still there.
  EXPECT_EQ(Gathered(), (std::vector<int>{0, 1}));
}

TEST_F(BlockWindowsTest, NothingIsWholeOnceTheWeightsHaveChanged) {
  windows_.Fetch(0, 1);
  windows_.Forget();
  windows_.Fetch(1, BlockWindows::kNoBlock);
  EXPECT_EQ(Gathered(), (std::vector<int>{0, 1, 10, 11, 10, 11}));
}

TEST(CommunicationStreamTest, MoreCallsThanFitRunInTheirOrder) {
  CommunicationStream stream(3);
  std::vector<int> done;
  std::vector<Call> calls;
  for (int i = 0; i < 100; ++i) calls.push_back([&done, i](Exec&) { done.push_back(i); });
  for (const Call& call : calls) stream.Post(call);
  stream.WaitForAll();
  ASSERT_EQ(done.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(done[size_t(i)], i);
}

TEST(CommunicationStreamTest, AFailureIsThrownByTheWaitForItOrALaterCall) {
  CommunicationStream stream(4);
  const Call fine = [](Exec&) {}, fails = [](Exec&) { throw std::runtime_error("lost"); };
  const auto first = stream.Post(fine), second = stream.Post(fails);
  stream.Post(fine);
  stream.Wait(first);
  EXPECT_THROW(stream.Wait(second), std::runtime_error);
}

}  // namespace
}  // namespace trainyard::testing
