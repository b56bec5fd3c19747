// Proves that nothing is lost, whatever fails: 200 seeds of the simulation (simulation.h). Each
// draws a cluster, jobs, and faults: crash, freeze, partition, torn write, power cut, full disk,
// clock jump. Defects that it must catch, each tried once by putting it back: a registration that
// applies an exit before the reports that wait; attempts that load recorded checkpoints alone;
// records of earlier attempts refused; a closed stream that counts as lost after a lease; an
// outbox that forgets what was sent and not stored.

#include "tests/simulation/simulation.h"

#include <gtest/gtest.h>

namespace trainyard::simulation {
namespace {

constexpr uint64_t kSeeds = 200;

TEST(Simulation, NothingIsLostUnderAnySeed) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Outcome outcome = RunSeed(seed);
    ASSERT_TRUE(outcome.failure.empty()) << Explain(seed, outcome);
  }
}

TEST(Simulation, TheSameSeedGivesTheSameTrace) {
  for (uint64_t seed = 1; seed <= kSeeds / 20; ++seed) {
    EXPECT_EQ(RunSeed(seed).hash, RunSeed(seed).hash) << "seed " << seed;
  }
}

}  // namespace
}  // namespace trainyard::simulation
