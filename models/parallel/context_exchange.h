// How the ranks that share a sequence get each other's keys and values.

#pragma once

#include <cstdint>

namespace trainyard {

enum class ContextExchange : uint8_t {
  kRing,       // Keys and values travel round; a rank holds those of two ranks at a time.
  kAllGather,  // Each rank gathers all keys and values at once.
};

}  // namespace trainyard
