// Proves that all whose work waits have their turns, each in order, and that what waits has a
// bound.

#include "controller/service/executor.h"

#include <gmock/gmock.h>

#include <future>

namespace trainyard::controller {
namespace {

// Bug it must catch: who asks for much makes everybody else wait until all of it is done.
TEST(Executor, EachHasItsTurn) {
  std::vector<std::string> done;
  std::promise<void> begin;  // Outlives the executor, whose thread may come to its work late.
  {
    Executor executor;
    executor.Post("first", [&] { begin.get_future().wait(); });
    for (const char* one : {"a1", "a2", "a3", "a4"}) {
      executor.Post("a", [&done, one] { done.emplace_back(one); });
    }
    for (const char* one : {"b1", "b2"}) {
      executor.Post("b", [&done, one] { done.emplace_back(one); });
    }
    begin.set_value();
  }
  EXPECT_THAT(done, ::testing::ElementsAre("a1", "b1", "a2", "b2", "a3", "a4"));
}

TEST(Executor, TakesNoMoreThanItIsToldTo) {
  int done = 0;
  std::promise<void> begun, begin;  // Outlive the executor, as above.
  {
    Executor executor;
    executor.Post("first", [&] {
      begun.set_value();
      begin.get_future().wait();
    });
    begun.get_future().wait();
    EXPECT_TRUE(executor.Offer("a", 2, [&] { ++done; }));
    EXPECT_TRUE(executor.Offer("b", 2, [&] { ++done; }));
    EXPECT_FALSE(executor.Offer("c", 2, [&] { ++done; }));
    begin.set_value();
  }
  EXPECT_EQ(done, 2);
}

}  // namespace
}  // namespace trainyard::controller
