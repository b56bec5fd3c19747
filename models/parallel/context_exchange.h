// How the ranks that share out a sequence come by each other's keys and values.

#pragma once

#include <cstdint>

namespace trainyard {

enum class ContextExchange : uint8_t {
  kRing,       // They go round; a rank has those of two ranks at a time.
  kAllGather,  // Each rank gathers all of them at once.
};

}  // namespace trainyard
