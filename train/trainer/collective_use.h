// The cost of a rank's collectives between two step records.

#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/rank_records.h"
#include "kernels/collective/collective.h"

namespace trainyard {

// Not thread-safe. The groups may be in use by other threads.
class CollectiveMeter {
 public:
  // `group` must outlive the meter. Groups of the same name are counted together.
  void Watch(const std::string& name, const Collective& group);

  // Returns the use since the last call. Operations that were not called are left out.
  std::vector<CollectiveUse> Take();

 private:
  std::map<std::string, std::vector<const Collective*>> groups_;
  std::map<std::pair<std::string, CollectiveOp>, OpCounts> taken_;
};

}  // namespace trainyard
