#include "train/data/diffusion.h"

#include <cmath>

#include "common/check.h"

namespace trainyard {

NoiseSchedule::NoiseSchedule(int64_t times) {
  CHECK(times > 0) << times;
  constexpr double kFirst = 1e-4, kLast = 0.02;
  double kept = 1;  // abar
  for (int64_t t = 0; t < times; ++t) {
    const double way = times == 1 ? 0 : double(t) / double(times - 1);
    kept *= 1 - (kFirst + way * (kLast - kFirst));
    shares_.push_back({.sample = std::sqrt(kept), .noise = std::sqrt(1 - kept)});
  }
}

}  // namespace trainyard
