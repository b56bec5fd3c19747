#include "train/data/diffusion.h"

#include <cmath>

#include "common/check.h"

namespace trainyard {

NoiseSchedule::NoiseSchedule(int64_t times) {
  CHECK(times > 0) << times;
  // With fewer times each step adds more noise, so that the last time is about as noisy.
  const double scale = 1000.0 / double(times), first = 1e-4 * scale, last = 0.02 * scale;
  CHECK(last < 1) << times << " times";
  double kept = 1;  // abar
  for (int64_t t = 0; t < times; ++t) {
    kept *= 1 - (first + double(t) / double(times - 1) * (last - first));
    shares_.push_back({.sample = std::sqrt(kept), .noise = std::sqrt(1 - kept)});
  }
}

}  // namespace trainyard
