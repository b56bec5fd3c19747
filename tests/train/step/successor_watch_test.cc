// Proves that training learns of a later attempt from a thread of its own, and waits for nothing
// that hangs.

#include "train/trainer/successor_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>

namespace trainyard {
namespace {

TEST(SuccessorWatch, SeesOneOnceThereIsOne) {
  const auto there = std::make_shared<std::atomic<bool>>(false);
  const auto looks = std::make_shared<std::atomic<int>>(0);
  const SuccessorWatch watch([there, looks] {
    ++*looks;
    looks->notify_all();
    return there->load();
  });
  looks->wait(0);
  EXPECT_FALSE(watch.seen());
  *there = true;
  while (!watch.seen()) std::this_thread::yield();
}

// The look ends only after the watch has ended: with one that waits, this test does not end.
TEST(SuccessorWatch, WaitsForNoLookThatHangs) {
  struct Hanging {
    std::latch begun{1}, back{1}, ended{1};
  };
  const auto hanging = std::make_shared<Hanging>();
  {
    const SuccessorWatch watch([hanging] {
      hanging->begun.count_down();
      hanging->back.wait();
      hanging->ended.count_down();
      return true;
    });
    hanging->begun.wait();
    EXPECT_FALSE(watch.seen());
  }
  hanging->back.count_down();
  hanging->ended.wait();
}

}  // namespace
}  // namespace trainyard
