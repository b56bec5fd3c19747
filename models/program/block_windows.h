// Which blocks' weights are whole under ZeRO FULL. Two windows of memory take turns: while the
// computing thread works on a block in one, the next block is gathered into the other.

#pragma once

#include <array>
#include <vector>

#include "models/program/communication_stream.h"
#include "models/program/op.h"

namespace trainyard {

// Used by the computing thread alone. What is posted follows from the calls made here, so that
// ranks which run the same schedule gather in the same order.
class BlockWindows {
 public:
  explicit BlockWindows(CommunicationStream& stream) : stream_(stream) {}

  // A collective that makes a part of the block whole in its window. Before the first Fetch.
  void Add(int block, int window, Call gather);

  // Returns when the block's weights are whole. Begins to gather `ahead`, which is wanted next,
  // where that has the other window; kNoBlock: nothing. Whatever was in that window is lost.
  void Fetch(int block, int ahead);
  // The weights have changed: no block is whole any longer, and none is being gathered. Begins to
  // gather `ahead`.
  void Forget(int ahead = kNoBlock);

  static constexpr int kNoBlock = -1;

 private:
  struct Block {
    int window = 0;
    std::vector<Call> gathers;
  };
  struct Window {
    int block = kNoBlock;  // Whole, or being gathered.
    CommunicationStream::Ticket ticket = 0;
  };
  void Gather(int block);  // kNoBlock or one without gathers: nothing.

  CommunicationStream& stream_;
  std::vector<Block> blocks_;  // By number of the block; without gathers where none is needed.
  std::array<Window, 2> windows_;
};

}  // namespace trainyard
