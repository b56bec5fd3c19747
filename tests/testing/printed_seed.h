// The seed of whatever a test draws at random.

#pragma once

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>

namespace trainyard::testing {

// $TRAINYARD_SEED, or another number in each run. Prints the number once.
inline uint64_t PrintedSeed() {
  static const uint64_t seed = [] {
    const char* given = std::getenv("TRAINYARD_SEED");
    const uint64_t value =
        given == nullptr ? std::random_device()() : std::strtoull(given, nullptr, 10);
    std::cout << "drawn by TRAINYARD_SEED=" << value << '\n' << std::flush;
    return value;
  }();
  return seed;
}

}  // namespace trainyard::testing
