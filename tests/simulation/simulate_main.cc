// Runs many seeds of the simulation: simulate [--first SEED] [--seeds N] [--twice]. Says which
// failed, with the trace's tail of each, and the hash of all traces; ends with 1 if any failed.

#include <cstdio>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/rng.h"
#include "tests/simulation/simulation.h"

namespace trainyard::simulation {
namespace {

constexpr uint64_t kSeedsPerLine = 500;

struct Options {
  uint64_t first = 1, seeds = 200;
  bool twice = false;  // Each seed, and the same trace is wanted.
};

bool Parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    uint64_t* const number = flag == "--first"   ? &options.first
                             : flag == "--seeds" ? &options.seeds
                                                 : nullptr;
    if (flag == "--twice") {
      options.twice = true;
    } else if (number == nullptr || ++i == argc || !absl::SimpleAtoi(argv[i], number)) {
      return false;
    }
  }
  return true;
}

int Main(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, options)) {
    std::fprintf(stderr, "usage: %s [--first SEED] [--seeds N] [--twice]\n", argv[0]);
    return 2;
  }
  const absl::Duration begin = RealClock().Monotonic();
  absl::Duration simulated;
  uint64_t failed = 0, events = 0, hash = 0;
  for (uint64_t seed = options.first; seed < options.first + options.seeds; ++seed) {
    Outcome outcome = RunSeed(seed);
    if (options.twice && outcome.failure.empty() && RunSeed(seed).hash != outcome.hash) {
      outcome.failure = "the same seed gave another trace";
    }
    simulated += outcome.simulated;
    events += outcome.events;
    hash = Mix(hash ^ outcome.hash);
    if ((seed - options.first + 1) % kSeedsPerLine == 0) {
      std::printf("at seed %s, %s failed\n", absl::StrCat(seed).c_str(),
                  absl::StrCat(failed).c_str());
      std::fflush(stdout);
    }
    if (outcome.failure.empty()) continue;
    ++failed;
    std::printf("%s\n", Explain(seed, outcome).c_str());
    std::fflush(stdout);
  }
  const double seconds = absl::ToDoubleSeconds(RealClock().Monotonic() - begin);
  std::printf("%s\n", absl::StrCat(options.seeds, " seeds from ", options.first, ", ", failed,
                                   " failed, ", seconds, " s, ", events, " events, ",
                                   absl::ToDoubleSeconds(simulated) / seconds,
                                   " simulated seconds a second, hash ", absl::Hex(hash))
                          .c_str());
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace trainyard::simulation

int main(int argc, char** argv) { return trainyard::simulation::Main(argc, argv); }
