// Proves that few newcomers of an address that owes are let in, and that no other address waits for
// them.

#include "controller/service/waiting_room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "common/check.h"
#include "common/file_descriptor.h"

namespace trainyard::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class WaitingRoomTest : public ::testing::Test {
 protected:
  // Returns the peer's side.
  FileDescriptor Come(const std::string& peer) {
    int fds[2];
    CHECK(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0) << errno;
    waits_ = room_.Add({.socket = FileDescriptor(fds[0]), .peer = peer}, now_);
    return FileDescriptor(fds[1]);
  }
  std::vector<std::string> LetIn() {
    std::vector<std::string> peers;
    for (const Newcomer& in : room_.LetIn(now_, [&](const std::string&) { return owes_; })) {
      peers.push_back(in.peer);
    }
    return peers;
  }

  absl::Duration now_ = absl::Seconds(100);
  bool owes_ = true;
  bool waits_ = false;
  WaitingRoom room_{512};
};

TEST_F(WaitingRoomTest, OneOfAnAddressIsLetInAtATime) {
  const FileDescriptor first = Come("10.0.0.7 1"), second = Come("10.0.0.7 2");
  EXPECT_THAT(LetIn(), ElementsAre("10.0.0.7 1"));
  EXPECT_THAT(LetIn(), IsEmpty());
  now_ = room_.next();
  EXPECT_THAT(LetIn(), ElementsAre("10.0.0.7 2"));
  const FileDescriptor third = Come("10.0.0.7 3");
  EXPECT_THAT(LetIn(), IsEmpty()) << "an empty queue is no way round the turn";
  now_ += absl::Seconds(1);
  EXPECT_THAT(LetIn(), ElementsAre("10.0.0.7 3"));
  now_ += absl::Seconds(1);
  EXPECT_THAT(LetIn(), IsEmpty());
  EXPECT_EQ(room_.next(), absl::InfiniteDuration());
}

// Bug it must catch: one flooder takes all places, and nobody else who owes gets in.
TEST_F(WaitingRoomTest, AddressesDoNotWaitForEachOther) {
  std::vector<FileDescriptor> peers;
  for (int i = 0; i < 100; ++i) peers.push_back(Come("10.0.0.7 " + std::to_string(i)));
  EXPECT_FALSE(waits_) << "sixteen of one address wait";
  peers.push_back(Come("10.0.0.8 1"));
  EXPECT_TRUE(waits_);
  EXPECT_THAT(LetIn(), ElementsAre("10.0.0.7 0", "10.0.0.8 1"));
}

TEST_F(WaitingRoomTest, WhoHungUpTakesNobodysTurn) {
  { const FileDescriptor gone = Come("10.0.0.7 1"); }
  const FileDescriptor there = Come("10.0.0.7 2");
  EXPECT_THAT(LetIn(), ElementsAre("10.0.0.7 2"));
}

TEST_F(WaitingRoomTest, AllGoInOnceTheirAddressOwesNothing) {
  std::vector<FileDescriptor> peers;
  for (int i = 0; i < 10; ++i) peers.push_back(Come("10.0.0.7 " + std::to_string(i)));
  EXPECT_THAT(LetIn(), SizeIs(1));
  owes_ = false;
  EXPECT_THAT(LetIn(), SizeIs(9));
}

TEST_F(WaitingRoomTest, ThereIsRoomForSoMany) {
  std::vector<FileDescriptor> peers;
  for (int i = 0; i < 2000; ++i) {
    peers.push_back(Come("10.0." + std::to_string(i / 250) + "." + std::to_string(i % 250) + " 1"));
  }
  EXPECT_FALSE(waits_);
  EXPECT_THAT(LetIn(), SizeIs(512));
}

}  // namespace
}  // namespace trainyard::controller
