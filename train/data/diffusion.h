// How noise is mixed into a sample of a diffusion model at each of its times.
//
//   beta_t  rises linearly from 1e-4 at t = 0 to 0.02 at the last time
//   abar_t = prod_{s <= t} (1 - beta_s)
//   x_t    = sqrt(abar_t) x0 + sqrt(1 - abar_t) eps
//   v      = sqrt(abar_t) eps - sqrt(1 - abar_t) x0
//
// Source: Ho et al. 2020, arXiv:2006.11239, section 4 and eq. 4 (with 1000 times, counted from 1);
// v: Salimans & Ho 2022, arXiv:2202.00512, section 4. It is the schedule "linear" of diffusers.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trainyard {

class NoiseSchedule {
 public:
  // `times` > 0.
  explicit NoiseSchedule(int64_t times);

  // What the sample and its noise are multiplied by at one time.
  struct Share {
    double sample;  // sqrt(abar_t)
    double noise;   // sqrt(1 - abar_t)

    double Noised(double x0, double eps) const { return sample * x0 + noise * eps; }
    double Velocity(double x0, double eps) const { return sample * eps - noise * x0; }
  };
  const Share& at(int64_t time) const { return shares_[size_t(time)]; }
  int64_t times() const { return int64_t(shares_.size()); }

 private:
  std::vector<Share> shares_;
};

}  // namespace trainyard
