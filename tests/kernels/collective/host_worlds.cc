// What carries the host's tensors.

#include "tests/kernels/collective/worlds.h"

namespace trainyard::testing {

std::vector<Kind> TestedKinds() { return {Kind::kLocal, Kind::kGloo}; }

std::vector<KindAndSize> TestedWorlds() {
  return {{Kind::kLocal, 1}, {Kind::kLocal, 2}, {Kind::kLocal, 3},
          {Kind::kLocal, 4}, {Kind::kLocal, 8}, {Kind::kGloo, 1},
          {Kind::kGloo, 2},  {Kind::kGloo, 3},  {Kind::kGloo, 4}};
}

std::unique_ptr<Threads> NewThreads(Kind kind, int size) {
  if (kind == Kind::kGloo) return std::make_unique<GlooThreads>(size);
  return std::make_unique<LocalThreads>(size);
}

}  // namespace trainyard::testing
