// Which blocks' weights are whole under ZeRO FULL. Two windows of memory take turns: while the
// computing thread works on a block in one, the next block is gathered into the other. The rule
// alone: gathering is the caller's, so that a step's gathers can also be counted without running
// it.

#pragma once

#include <array>
#include <functional>
#include <utility>
#include <vector>

namespace trainyard {

// What is gathered follows from the calls made here, so that ranks which run the same schedule
// gather in the same order.
class BlockWindows {
 public:
  // `gather` begins to make a block whole in its window, whatever was there before.
  explicit BlockWindows(std::function<void(int block)> gather) : gather_(std::move(gather)) {}

  // A block that is gathered; all others are whole always.
  void Add(int block, int window);

  // A block's weights are wanted now. Begins to gather `ahead`, which is wanted next, where that
  // has the other window; kNoBlock: nothing.
  void Fetch(int block, int ahead);
  // The weights have changed: no block is whole any longer, and none is being gathered. Begins to
  // gather `ahead`.
  void Forget(int ahead = kNoBlock);

  static constexpr int kNoBlock = -1;

 private:
  int window_of(int block) const;  // kNoWindow: not gathered.
  void Gather(int block);

  static constexpr int kNoWindow = -1;
  const std::function<void(int block)> gather_;
  std::vector<int> windows_;                     // By block.
  std::array<int, 2> held_{kNoBlock, kNoBlock};  // By window: whole, or being gathered.
};

}  // namespace trainyard
