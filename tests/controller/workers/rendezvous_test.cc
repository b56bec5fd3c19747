// Proves that values reach those who ask before and after, within bounds, and not across epochs.

#include "controller/workers/rendezvous.h"

#include <gmock/gmock.h>

#include "tests/controller/testing/cluster_fixture.h"

namespace trainyard::controller {
namespace {

TEST(Rendezvous, AnswersThoseWhoAskedBeforeAndAfter) {
  Rendezvous rendezvous;
  const auto early = std::make_shared<FakeLink>(), late = std::make_shared<FakeLink>();
  ASSERT_TRUE(rendezvous.Get("j", 1, "key", early).ok());
  EXPECT_TRUE(early->Take<RendezvousValue>().empty());
  ASSERT_TRUE(rendezvous.Set("j", 1, "key", "value").ok());
  EXPECT_EQ(early->Take<RendezvousValue>().at(0).value, "value");
  ASSERT_TRUE(rendezvous.Get("j", 1, "key", late).ok());
  EXPECT_EQ(late->Take<RendezvousValue>().at(0).value, "value");
  ASSERT_TRUE(rendezvous.Set("j", 1, "key", "other").ok());
  ASSERT_TRUE(rendezvous.Get("j", 1, "key", late).ok());
  EXPECT_EQ(late->Take<RendezvousValue>().at(0).value, "value") << "the first one stays";
}

TEST(Rendezvous, EpochsDoNotMeet) {
  Rendezvous rendezvous;
  const auto link = std::make_shared<FakeLink>();
  ASSERT_TRUE(rendezvous.Set("j", 1, "key", "old").ok());
  ASSERT_TRUE(rendezvous.Get("j", 2, "key", link).ok());
  EXPECT_TRUE(link->Take<RendezvousValue>().empty());
  EXPECT_FALSE(rendezvous.Set("j", 1, "key", "old").ok());
  ASSERT_TRUE(rendezvous.Set("j", 2, "key", "new").ok());
  EXPECT_EQ(link->Take<RendezvousValue>().at(0).value, "new");
}

TEST(Rendezvous, IsBounded) {
  Rendezvous rendezvous;
  EXPECT_FALSE(rendezvous.Set("j", 1, "k", std::string(kMaxRendezvousValueBytes + 1, 'v')).ok());
  EXPECT_FALSE(rendezvous.Set("j", 1, std::string(kMaxRendezvousKeyBytes + 1, 'k'), "v").ok());
  absl::Status status;
  size_t kept = 0;
  for (; status.ok() && kept < 10'000; ++kept) {
    status = rendezvous.Set("j", 1, std::to_string(kept), std::string(1 << 16, 'v'));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_LE(kept, 256u);
  rendezvous.Drop("j");
  EXPECT_TRUE(rendezvous.Set("j", 1, "k", "v").ok());
}

}  // namespace
}  // namespace trainyard::controller
