// Proves that what is unread of young connections, and nothing else, says that there are too many.

#include "controller/service/newcomers.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

#include "common/check.h"
#include "common/file_descriptor.h"

namespace trainyard::controller {
namespace {

class Pair {
 public:
  Pair() {
    int fds[2];
    CHECK(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0) << errno;
    near_ = FileDescriptor(fds[0]);
    far_ = FileDescriptor(fds[1]);
  }
  int near() const { return near_.get(); }
  void Say() { CHECK(::send(far_.get(), "x", 1, 0) == 1) << errno; }
  void Read() {
    char byte;
    CHECK(::recv(near_.get(), &byte, 1, 0) == 1) << errno;
  }
  // As a TCP peer that closes: this side may still write, so that the socket is not "hung up".
  void HangUp() { CHECK(::shutdown(far_.get(), SHUT_WR) == 0) << errno; }

 private:
  FileDescriptor near_, far_;
};

class NewcomersTest : public ::testing::Test {
 protected:
  NewcomersTest() : pairs_(4) {
    for (const Pair& pair : pairs_) newcomers_.Add(pair.near(), now_);
  }
  bool Crowded(size_t most) { return newcomers_.Crowded(most, now_); }

  absl::Duration now_ = absl::Seconds(100);
  std::vector<Pair> pairs_;
  Newcomers newcomers_{absl::Seconds(8)};
};

// Bug it must catch: peers that never say a word keep everybody out.
TEST_F(NewcomersTest, WhoSaysNothingDoesNotCount) { EXPECT_FALSE(Crowded(1)); }

TEST_F(NewcomersTest, WhoWaitsToBeReadCounts) {
  pairs_[0].Say();
  pairs_[2].Say();
  EXPECT_TRUE(Crowded(2));
  EXPECT_FALSE(Crowded(3));
  pairs_[2].Read();
  EXPECT_FALSE(Crowded(2));
  EXPECT_TRUE(Crowded(1)) << "to look reads nothing";
}

// Bug it must catch: workers that have much to say keep others out for good.
TEST_F(NewcomersTest, WhoCameLongAgoDoesNotCount) {
  pairs_[0].Say();
  now_ += absl::Seconds(8);
  EXPECT_TRUE(Crowded(1));
  now_ += absl::Milliseconds(1);
  EXPECT_FALSE(Crowded(1));
}

TEST_F(NewcomersTest, WhatIsNoConnectionAnyMoreDoesNotCount) {
  pairs_[0].Say();
  pairs_.clear();
  EXPECT_FALSE(Crowded(1));
}

// Bug it must catch: whoever opens and closes connections quickly, and then sends without end by
// one that got the same descriptor, counts as many and keeps everybody out.
TEST_F(NewcomersTest, ADescriptorThatIsGivenOutAgainCountsOnce) {
  for (int i = 0; i < 100; ++i) newcomers_.Add(pairs_[0].near(), now_);
  pairs_[0].Say();
  EXPECT_TRUE(Crowded(1));
  EXPECT_FALSE(Crowded(2));
  now_ += absl::Seconds(8);
  newcomers_.Add(pairs_[0].near(), now_);
  now_ += absl::Seconds(8);
  EXPECT_TRUE(Crowded(1)) << "its age is that of the connection that has it now";
}

TEST_F(NewcomersTest, APeerThatHungUpIsGoneWhateverItHadSaid) {
  EXPECT_FALSE(PeerIsGone(pairs_[0].near()));
  pairs_[0].Say();
  EXPECT_FALSE(PeerIsGone(pairs_[0].near()));
  pairs_[0].HangUp();
  EXPECT_TRUE(PeerIsGone(pairs_[0].near()));
}

}  // namespace
}  // namespace trainyard::controller
