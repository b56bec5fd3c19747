#include "train/trainer/collective_use.h"

#include "kernels/collective/flight_recorder.h"

namespace trainyard {

void CollectiveMeter::Watch(const std::string& name, const Collective& group) {
  groups_[name].push_back(&group);
}

std::vector<CollectiveUse> CollectiveMeter::Take() {
  std::vector<CollectiveUse> uses;
  for (const auto& [name, groups] : groups_) {
    for (size_t i = 0; i < kCollectiveOps; ++i) {
      const CollectiveOp op = CollectiveOp(i);
      OpCounts now;
      for (const Collective* group : groups) {
        const OpCounts counts = group->counts(op);
        now.calls += counts.calls;
        now.bytes += counts.bytes;
        now.seconds += counts.seconds;
      }
      OpCounts& taken = taken_[{name, op}];
      if (now.calls > taken.calls) {
        uses.push_back({.op = Name(op),
                        .group = name,
                        .calls = uint64_t(now.calls - taken.calls),
                        .bytes = uint64_t(now.bytes - taken.bytes),
                        .seconds = now.seconds - taken.seconds});
      }
      taken = now;
    }
  }
  return uses;
}

}  // namespace trainyard
