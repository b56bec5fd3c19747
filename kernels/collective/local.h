// Ranks that are threads of one process: for tests of everything parallel, without sockets.

#pragma once

#include <memory>
#include <vector>

#include "kernels/collective/world.h"

namespace trainyard {

// A world of `size` ranks. world(i) belongs to rank i and may be used on that rank's threads. Must
// outlive its groups. Joining a group does not wait. No rank leaves a collective while another
// reads its tensor, and messages are copied when they are posted, so a rank that throws may unwind.
// A rank that ends early must call Abort(), or its peers wait forever.
//
// This implementation is stricter than the others: WaitSend always waits for the peer's Receive,
// and CHECKs that the data have not changed since they were posted.
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
