// Ranks that are threads of one process: for tests of everything that is parallel, without sockets.

#pragma once

#include <memory>
#include <vector>

#include "kernels/collective/world.h"

namespace trainyard {

// A world of `size` ranks: world(i) belongs to rank i, on threads of its own. Outlives its groups.
// Joining one does not wait. No rank leaves a collective while another reads its tensor, and
// messages are copied when posted, so a rank that throws may unwind. A rank that ends early must
// Abort(), or its peers wait for ever.
//
// Strict where other implementations may be: WaitSend waits for the peer's Receive, and fails a
// CHECK if the data has changed since it was posted.
class LocalWorld {
 public:
  explicit LocalWorld(int size);
  ~LocalWorld();

  int size() const { return int(ranks_.size()); }
  CollectiveWorld& world(int i) const { return *ranks_[size_t(i)]; }

 private:
  struct Hub;
  class Rank;
  std::unique_ptr<Hub> hub_;
  std::vector<std::unique_ptr<CollectiveWorld>> ranks_;
};

}  // namespace trainyard
