// Proves what is Gloo's alone: timeouts, and errors of finding each other, that name their culprit.

#include <future>

#include "tests/kernels/collective/worlds.h"

namespace trainyard {
namespace {

using testing::GlooThreads;
using ::testing::HasSubstr;
using testing::RunRanks;
using testing::View;

TEST(Gloo, OperationPastItsTimeoutNamesItselfAndAllWhoDidNotCome) {
  GlooThreads gloo(4, absl::Milliseconds(50));
  const auto errors = RunRanks(gloo.worlds(), [&](Collective& group) {
    group.Barrier();
    std::vector<double> data = {1};
    if (group.rank() == 1) group.AllReduceSum(View(data));
  });
  EXPECT_THAT(errors[1], HasSubstr("all_reduce_sum 2 of group everyone, rank 1 of 4 (world rank 1)"
                                   ": no word within 50ms from world rank 0, 2, 3 ("));
}

TEST(Gloo, ThoseWhoCameAreNotNamed) {
  GlooThreads gloo(3, absl::Milliseconds(50));
  const auto errors = RunRanks(gloo.worlds(), [&](Collective& group) {
    group.Barrier();
    std::vector<double> data = {1};
    // Rank 2 looks at rank 0 first, which comes, but waits for rank 1.
    if (group.rank() != 1) group.AllReduceSum(View(data));
  });
  for (int rank : {0, 2}) {
    EXPECT_THAT(errors[size_t(rank)], ::testing::AnyOf(HasSubstr("50ms from world rank 1 ("),
                                                       HasSubstr("lost world rank ")));
  }
  EXPECT_THAT(errors, ::testing::Contains(HasSubstr("50ms from world rank 1 (")));
}

TEST(Gloo, PeerThatDoesNotReceiveIsNamedByTheWaitForTheSend) {
  GlooThreads gloo(2, absl::Milliseconds(50));
  const auto errors = RunRanks(gloo.worlds(), [&](Collective& group) {
    const std::vector<double> data = {1};
    if (group.rank() == 0) group.WaitSend(group.PostSend(View(data), 1));
  });
  EXPECT_THAT(errors[0], HasSubstr("wait_send 1 to world rank 1 of group everyone, rank 0 of 2"));
  EXPECT_THAT(errors[0], HasSubstr("no word within 50ms from world rank 1 "));
}

// So that it travels while the receiver computes.
TEST(Gloo, APostedReceiveTakesItsMessageBeforeItIsWaitedFor) {
  GlooThreads gloo(2);
  std::promise<void> sent;
  const auto errors = RunRanks(gloo.worlds(), [&](Collective& group) {
    std::vector<double> data = {1.0 + group.rank()};
    if (group.rank() == 0) {
      const ReceiveHandle coming = group.PostReceive(View(data), 1);
      sent.get_future().wait();  // In vain if the message waits for WaitReceive.
      group.WaitReceive(coming);
      EXPECT_EQ(data[0], 2);
    } else {
      group.WaitSend(group.PostSend(View(data), 0));
      sent.set_value();
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Gloo, MissingRankIsADeadlineThatNamesItsKey) {
  testing::MemoryRendezvous rendezvous;
  const auto rank = CreateGlooWorld(
      {.rank = 0, .size = 2, .connect_timeout = absl::Milliseconds(50)}, rendezvous);
  EXPECT_EQ(rank.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(rank.status().message()), HasSubstr("gloo/1"));
}

TEST(Gloo, InterfaceThatIsNotThisMachinesIsAnErrorThatNamesIt) {
  testing::MemoryRendezvous rendezvous;
  for (const std::string interface : {"no-such-device", "192.0.2.1"}) {
    const auto rank = CreateGlooWorld({.rank = 0, .size = 2, .interface = interface}, rendezvous);
    EXPECT_EQ(rank.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(rank.status().message()), HasSubstr(interface));
  }
}

}  // namespace
}  // namespace trainyard
