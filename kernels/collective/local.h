// Ranks that are threads of one process: for tests of everything that is parallel, without sockets.

#pragma once

#include <memory>
#include <vector>

#include "kernels/collective/collective.h"

namespace trainyard {

// A group of `size` ranks. Each rank's Collective is used by one thread; the group outlives them
// all. No rank leaves an operation while another reads its tensor, so a rank that throws may
// unwind. A rank that ends early must Abort(), or its peers wait for ever.
class LocalGroup {
 public:
  explicit LocalGroup(int size);
  ~LocalGroup();

  int size() const { return int(ranks_.size()); }
  Collective& rank(int i) const { return *ranks_[size_t(i)]; }

 private:
  struct Meeting;
  class Rank;
  std::unique_ptr<Meeting> meeting_;
  std::vector<std::unique_ptr<Collective>> ranks_;
};

}  // namespace trainyard
