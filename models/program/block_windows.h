// Decides when the weights of blocks are gathered under ZeRO FULL. Two windows of memory take
// turns: while the compute thread works on a block in one window, the next block is gathered into
// the other. The class holds only this rule; the caller gathers. So the gathers of a step can also
// be counted without running the step.

#pragma once

#include <array>
#include <functional>
#include <utility>
#include <vector>

namespace trainyard {

// The gathers depend only on the calls made here, so that ranks that run the same schedule gather
// in the same order.
class BlockWindows {
 public:
  // `gather` must start to gather a block into its window, and may overwrite the window.
  explicit BlockWindows(std::function<void(int block)> gather) : gather_(std::move(gather)) {}

  // Adds a block that has to be gathered. The weights of all other blocks are always whole.
  void Add(int block, int window);

  // Call this when the weights of `block` are needed. Gathers `block` unless its window holds it
  // already. Then starts to gather `ahead`, the block needed next, if `ahead` uses the other
  // window. kNoBlock: nothing is gathered ahead.
  void Fetch(int block, int ahead);
  // Call this when the weights have changed: the windows hold no block any longer. Starts to gather
  // `ahead`.
  void Forget(int ahead = kNoBlock);

  static constexpr int kNoBlock = -1;

 private:
  int window_of(int block) const;  // kNoWindow: the block is not gathered.
  void Gather(int block);

  static constexpr int kNoWindow = -1;
  const std::function<void(int block)> gather_;
  std::vector<int> windows_;                     // By block.
  std::array<int, 2> held_{kNoBlock, kNoBlock};  // Whole or being gathered, by window.
};

}  // namespace trainyard
