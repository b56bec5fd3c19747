// Proves that programmer errors are caught, and say what does not fit.

#include "tests/kernels/collective/worlds.h"

namespace trainyard {
namespace {

using testing::GlooThreads;
using testing::RunRanks;
using testing::View;

class MisuseDeathTest : public ::testing::Test {
 protected:
  MisuseDeathTest() { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }

  LocalWorld world_{2};
  const std::unique_ptr<Collective> first_ = *world_.world(0).Everyone();
  const std::unique_ptr<Collective> second_ = *world_.world(1).Everyone();
  std::vector<float> data_ = std::vector<float>(6), other_ = std::vector<float>(6);
};

TEST_F(MisuseDeathTest, SlicesThatAreNotTheWhole) {
  EXPECT_DEATH(first_->AllGather(View(data_), View(other_)), "2 slices f32\\[6\\] are not f32");
  EXPECT_DEATH(first_->ReduceScatterSum(View(data_), View(other_)), "2 slices f32\\[6\\]");
}

TEST_F(MisuseDeathTest, RowsThatAreNotThere) {
  const Tensor tensor{{data_.data(), DType::kF32, Shape{3, 2}}};
  const std::vector<int64_t> three = {0, 3}, four = {0, 4}, one_rank = {3};
  EXPECT_DEATH(first_->AllToAll(tensor, four, tensor, three), "4 rows in f32\\[3, 2\\]");
  EXPECT_DEATH(first_->AllToAll(tensor, three, tensor, one_rank), "1 blocks for 2 ranks");
}

TEST_F(MisuseDeathTest, PairsThatConnectWasNotTold) {
  ASSERT_TRUE(first_->Connect({.messages = {RankPair{0, 1}}}).ok());
  EXPECT_DEATH(first_->Receive(View(data_), 1),
               "rank 1 sends to rank 0 of group everyone, which Connect was not told");
  EXPECT_DEATH(first_->SendReceive(View(data_), 1, View(other_), 1),
               "rank 0 sends to rank 1 of group everyone, which Connect was not told");
  const Tensor tensor{{data_.data(), DType::kF32, Shape{2, 3}}};
  const std::vector<int64_t> one_each = {1, 1};
  EXPECT_DEATH(first_->AllToAll(tensor, one_each, tensor, one_each), "which Connect was not told");
  EXPECT_DEATH((void)first_->Connect({}), "group everyone has been connected before");
  const Connections of_others{.messages = {RankPair{0, 2}}}, alone{.exchanges = {RankPair{1, 1}}};
  EXPECT_DEATH((void)second_->Connect(of_others), "rank 1 of group .* connects ranks 0 and 2");
  EXPECT_DEATH((void)second_->Connect(alone), "peer 1 of rank 1 of 2");
}

TEST_F(MisuseDeathTest, PeersThatAreNone) {
  EXPECT_DEATH(first_->PostSend(View(data_), 0), "peer 0 of rank 0 of 2");
  EXPECT_DEATH(first_->Receive(View(data_), 2), "peer 2 of rank 0 of 2");
  EXPECT_DEATH(first_->SendReceive(View(data_), 1, View(other_), 0), "both or none may be itself");
  EXPECT_DEATH((void)world_.world(0).Group("x", {1}), "no member of");
  EXPECT_DEATH((void)world_.world(0).Group("x", {0, 0}), "outside, or twice");
}

TEST_F(MisuseDeathTest, DataThatChangesBeforeTheSendIsWaitedFor) {
  const SendHandle sent = first_->PostSend(View(data_), 1);
  data_[5] = 1;
  second_->Receive(View(other_), 0);
  EXPECT_DEATH(first_->WaitSend(sent), "wait_send 1 to world rank 1 .*the data changed");
  data_[5] = 0;
  first_->WaitSend(sent);
}

TEST_F(MisuseDeathTest, SendThatIsWaitedForTwice) {
  const SendHandle sent = first_->PostSend(View(data_), 1);
  second_->Receive(View(other_), 0);
  first_->WaitSend(sent);
  EXPECT_DEATH(first_->WaitSend(sent), "waited for already");
}

TEST_F(MisuseDeathTest, PostedReceivesThatAreWaitedForOutOfOrder) {
  const ReceiveHandle one = first_->PostReceive(View(data_), 1);
  const ReceiveHandle two = first_->PostReceive(View(other_), 1);
  EXPECT_DEATH(first_->WaitReceive(two), "message 1 of rank 1 was not posted, or is not the next");
  EXPECT_DEATH(first_->Receive(View(data_), 1), "message 2 of rank 1");
  const SendHandle sent = second_->PostSend(View(other_), 0);
  first_->WaitReceive(one);
  second_->WaitSend(sent);
  EXPECT_DEATH(first_->WaitReceive(one), "message 0 of rank 1");
}

TEST_F(MisuseDeathTest, MessageOfAnotherSize) {
  first_->PostSend(View(data_), 1);
  EXPECT_DEATH(second_->Receive(View(other_, 0, 3), 0), "expects f32\\[3\\], is sent f32\\[6\\]");
}

TEST_F(MisuseDeathTest, RanksThatDisagreeAboutASize) {
  const auto reduce = [](Collective& group) {
    std::vector<float> data(6);
    group.AllReduceSum(View(data, 0, 5 + group.rank()));
  };
  EXPECT_DEATH(RunRanks(2, reduce), "ranks disagree: f32\\[[56]\\] and f32\\[[56]\\]");
  const auto exchange = [](Collective& group) {
    std::vector<float> data(6), other(6);
    const std::vector<int64_t> sent[] = {{1, 2}, {1, 1}}, expected[] = {{1, 1}, {3, 1}};
    const size_t rank = size_t(group.rank());
    group.AllToAll(View(data), sent[rank], View(other), expected[rank]);
  };
  EXPECT_DEATH(RunRanks(2, exchange), "rank 0 sends 2 rows of f32 to rank 1, which expects 3");
}

TEST(Misuse, GlooTimesOutOnMessagesOfAnotherSize) {
  for (int64_t difference : {-1, 1}) {
    GlooThreads gloo(2, absl::Milliseconds(50));
    const auto errors = RunRanks(gloo.worlds(), [&](Collective& group) {
      std::vector<float> data(6);
      if (group.rank() == 0) {
        group.WaitSend(group.PostSend(View(data, 0, 3), 1));
      } else {
        group.Receive(View(data, 0, 3 + difference), 0);
      }
    });
    EXPECT_THAT(errors, ::testing::Contains(::testing::HasSubstr("no word within 50ms from")));
    EXPECT_THAT(errors, ::testing::Each(::testing::HasSubstr("world rank")));
  }
}

}  // namespace
}  // namespace trainyard
