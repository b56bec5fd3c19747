// Says how noise is mixed into a sample of a diffusion model at each of the diffusion's times.
//
//   beta_t  rises linearly from 0.1 / T at t = 0 to 20 / T at the last of T times
//   abar_t = prod_{s <= t} (1 - beta_s)
//   x_t    = sqrt(abar_t) x0 + sqrt(1 - abar_t) eps
//   v      = sqrt(abar_t) eps - sqrt(1 - abar_t) x0
//
// Source: Ho et al. 2020, arXiv:2006.11239, section 4 and eq. 4. The paper has T = 1000 and counts
// times from 1. For another T, beta is scaled by 1000 / T, so that the last time is about as noisy.
// v is from Salimans & Ho 2022, arXiv:2202.00512, section 4. With T = 1000 the schedule is the
// schedule "linear" of diffusers.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trainyard {

// The table of a schedule. Immutable and thread-safe.
class NoiseSchedule {
 public:
  // CHECKs that `times` > 20: with 20 or fewer times, a beta would reach 1.
  explicit NoiseSchedule(int64_t times);

  // The factors of the sample and of its noise at one time.
  struct Share {
    double sample;  // sqrt(abar_t)
    double noise;   // sqrt(1 - abar_t)

    double Noised(double x0, double eps) const { return sample * x0 + noise * eps; }
    double Velocity(double x0, double eps) const { return sample * eps - noise * x0; }
  };
  // `time` must be at least 0 and below times().
  const Share& at(int64_t time) const { return shares_[size_t(time)]; }
  int64_t times() const { return int64_t(shares_.size()); }

 private:
  std::vector<Share> shares_;
};

}  // namespace trainyard
