// One run: a small cluster, its jobs, and what fails, all drawn from a seed. Start here.

#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "absl/time/time.h"

namespace trainyard::simulation {

struct Outcome {
  std::string failure;  // Empty: everything held.
  uint64_t hash = 0;    // Of all that happened, and of all messages.
  uint64_t events = 0;
  absl::Duration simulated;
  std::deque<std::string> tail;  // Of the trace.
};

// In a directory of its own, which is gone afterwards. The product's log lines are dropped.
Outcome RunSeed(uint64_t seed);

// What a person needs to look into it: the failure, how to repeat it, the trace's tail.
std::string Explain(uint64_t seed, const Outcome& outcome);

}  // namespace trainyard::simulation
