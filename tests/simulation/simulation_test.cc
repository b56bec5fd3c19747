// Proves that nothing is lost, whatever fails: 200 seeds of the simulation (simulation.h), in four
// parts. Each draws a cluster, jobs, and faults: crash, freeze, partition, torn write, power cut,
// full disk, clock jump. Defects that were put back to try it are found: docs/reliability.md.

#include "tests/simulation/simulation.h"

#include <gtest/gtest.h>

namespace trainyard::simulation {
namespace {

constexpr uint64_t kSeeds = 200;

TEST(Simulation, NothingIsLostUnderAnySeed) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Outcome outcome = Run(seed);
    ASSERT_TRUE(outcome.failure.empty()) << Explain(seed, outcome);
  }
}

TEST(Simulation, TheSameSeedGivesTheSameTrace) {
  for (uint64_t seed = 1; seed <= kSeeds / 20; ++seed) {
    EXPECT_EQ(Run(seed).hash, Run(seed).hash) << "seed " << seed;
  }
}

}  // namespace
}  // namespace trainyard::simulation
