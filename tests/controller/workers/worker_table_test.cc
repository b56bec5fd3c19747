// Proves that leases follow the monotonic clock alone, and that a superseded stream says nothing.

#include "controller/workers/worker_table.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "tests/controller/testing/cluster_fixture.h"
#include "tests/testing/fake_clock.h"

namespace trainyard::controller {
namespace {

class WorkerTableTest : public ::testing::Test {
 protected:
  WorkerTableTest() : table_(clock_, {.beat = absl::Seconds(2), .lease = absl::Seconds(6)}) {}

  std::vector<std::string> Pass(absl::Duration time) {
    std::vector<std::string> lost;
    for (; time > absl::ZeroDuration(); time -= absl::Seconds(1)) {
      clock_.Advance(absl::Seconds(1));
      for (const std::string& id : table_.Expire()) lost.push_back(id);
    }
    return lost;
  }
  Session Connect(const std::string& id, std::shared_ptr<WorkerLink> link) {
    Registration registration;
    registration.worker_id = id;
    return {id, (*table_.Connect(registration, std::move(link)))->session};
  }

  FakeClock clock_;
  WorkerTable table_;
};

TEST_F(WorkerTableTest, LeaseRunsOutOnceAndIsRenewedByAnyMessage) {
  const auto link = std::make_shared<FakeLink>();
  const Session session = Connect("w", link);
  EXPECT_THAT(Pass(absl::Seconds(5)), ::testing::IsEmpty());
  EXPECT_NE(table_.Hear(session), nullptr);
  EXPECT_THAT(Pass(absl::Seconds(6)), ::testing::IsEmpty());
  EXPECT_THAT(Pass(absl::Seconds(5)), ::testing::ElementsAre("w"));
  EXPECT_TRUE(absl::IsAborted(link->closed()));
  EXPECT_EQ(table_.Hear(session), nullptr) << "it must register again";
}

// Bug it must catch: an alert about a lost machine for one that was taken away in order.
TEST_F(WorkerTableTest, AWorkerThatDrainedAndWentIsCountedNoMore) {
  const Session lost = Connect("lost", std::make_shared<FakeLink>());
  const Session drained = Connect("drained", std::make_shared<FakeLink>());
  table_.Find("drained")->state = WorkerState::kDraining;
  EXPECT_TRUE(table_.Disconnect(drained));
  EXPECT_TRUE(table_.Find("drained")->counts());
  Pass(absl::Seconds(7));
  EXPECT_TRUE(table_.Find("lost")->counts());
  EXPECT_FALSE(table_.Find("drained")->counts());
  Connect("drained", std::make_shared<FakeLink>());
  EXPECT_TRUE(table_.Find("drained")->counts());
}

// Bug it must catch: 10,000 workers beat as often as ten do, and the controller does nothing else.
TEST_F(WorkerTableTest, ALargeFleetBeatsMoreRarely) {
  const auto link = std::make_shared<FakeLink>();
  const Session first = Connect("first", link);
  for (size_t i = 1; i < WorkerTable::kLargeFleet; ++i) Connect(absl::StrCat(i), nullptr);
  EXPECT_EQ(table_.pace().beat, absl::Seconds(2));
  EXPECT_THAT(table_.SlowDown(), ::testing::IsEmpty());
  for (size_t i = 0; i < WorkerTable::kLargeFleet * 3 / 2; ++i) {
    Connect(absl::StrCat("more-", i), nullptr);
  }
  EXPECT_EQ(table_.pace().beat, absl::Seconds(5));
  EXPECT_EQ(table_.pace().lease, absl::Seconds(15));
  EXPECT_THAT(table_.SlowDown(), ::testing::ElementsAre(table_.Find("first")));
  EXPECT_THAT(table_.SlowDown(), ::testing::IsEmpty()) << "it has been told";
  EXPECT_THAT(Pass(absl::Seconds(15)), ::testing::Not(::testing::Contains("first")));
  EXPECT_NE(table_.Hear(first), nullptr);
  EXPECT_THAT(Pass(absl::Seconds(15)), ::testing::Not(::testing::Contains("first")));
  EXPECT_THAT(Pass(absl::Seconds(1)), ::testing::Contains("first"));
}

// Bug it must catch: of 10,000 workers that come back after a restart, the first are lost while the
// controller is busy with the last.
TEST_F(WorkerTableTest, NobodyIsLostWhileAFleetComesBack) {
  table_.Expect("w", absl::Seconds(60));
  const Session session = Connect("w", std::make_shared<FakeLink>());
  const Session other = Connect("other", std::make_shared<FakeLink>());
  EXPECT_THAT(Pass(absl::Seconds(30)), ::testing::IsEmpty());
  EXPECT_NE(table_.Hear(session), nullptr);
  EXPECT_THAT(Pass(absl::Seconds(30)), ::testing::IsEmpty());
  EXPECT_NE(table_.Hear(session), nullptr);
  EXPECT_THAT(Pass(absl::Seconds(6)), ::testing::ElementsAre("other"));
  EXPECT_EQ(table_.Hear(other), nullptr);
}

TEST_F(WorkerTableTest, JumpsOfTheWallClockExpireNothing) {
  const Session session = Connect("w", std::make_shared<FakeLink>());
  for (const absl::Duration jump : {absl::Hours(24), absl::Hours(-48), absl::Hours(1)}) {
    clock_.JumpWall(jump);
    EXPECT_THAT(Pass(absl::Seconds(1)), ::testing::IsEmpty());
    EXPECT_NE(table_.Hear(session), nullptr);
  }
}

TEST_F(WorkerTableTest, PauseOfTheControllerIsNotHeldAgainstWorkers) {
  const Session session = Connect("w", std::make_shared<FakeLink>());
  Pass(absl::Seconds(1));
  clock_.Advance(absl::Minutes(10));  // Stopped, and continued.
  EXPECT_THAT(table_.Expire(), ::testing::IsEmpty());
  EXPECT_THAT(Pass(absl::Seconds(3)), ::testing::IsEmpty());
  EXPECT_NE(table_.Hear(session), nullptr);
}

// Catches a pause between the start and the first look at the leases.
TEST_F(WorkerTableTest, PauseRightAfterTheStartIsNotHeldAgainstExpectedWorkers) {
  table_.Expect("w", absl::Seconds(12));
  clock_.Advance(absl::Minutes(10));
  EXPECT_THAT(table_.Expire(), ::testing::IsEmpty());
  EXPECT_THAT(Pass(absl::Seconds(3)), ::testing::IsEmpty());
}

TEST_F(WorkerTableTest, NewStreamSupersedesTheOld) {
  const auto old_link = std::make_shared<FakeLink>();
  const Session old = Connect("w", old_link);
  const Session current = Connect("w", std::make_shared<FakeLink>());
  EXPECT_TRUE(absl::IsAborted(old_link->closed()));
  EXPECT_EQ(table_.Hear(old), nullptr);
  table_.Disconnect(old);
  EXPECT_NE(table_.Find("w")->link, nullptr) << "the old stream's end is not the new one's";
  EXPECT_NE(table_.Hear(current), nullptr);
}

TEST_F(WorkerTableTest, ExpectedWorkersHaveTheirGrace) {
  table_.Expect("w", absl::Seconds(12));
  EXPECT_THAT(Pass(absl::Seconds(12)), ::testing::IsEmpty());
  EXPECT_THAT(Pass(absl::Seconds(1)), ::testing::ElementsAre("w"));
}

// Catches a worker that is shut out, and for whom its jobs wait as long as for one that restarts.
TEST_F(WorkerTableTest, WhoIsExpelledIsLostAtOnceHoweverLongItMayBeDetached) {
  Registration registration;
  registration.worker_id = "w";
  registration.detach = absl::Minutes(10);
  const Worker* worker = *table_.Connect(registration, std::make_shared<FakeLink>());
  const Session session{"w", worker->session};
  EXPECT_TRUE(table_.Expel(session));
  EXPECT_THAT(Pass(absl::Milliseconds(1)), ::testing::ElementsAre("w"));
  EXPECT_FALSE(table_.Expel(session));
  // Nor may one that is away already.
  worker = *table_.Connect(registration, std::make_shared<FakeLink>());
  const Session away{"w", worker->session};
  EXPECT_TRUE(table_.Disconnect(away));
  EXPECT_TRUE(table_.Expel(away));
  EXPECT_THAT(Pass(absl::Milliseconds(1)), ::testing::ElementsAre("w"));
}

}  // namespace
}  // namespace trainyard::controller
