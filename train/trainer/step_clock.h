// Measures the seconds of a rank's steps on the host's clock. docs/metrics.md says what they are.

#pragma once

#include <algorithm>
#include <chrono>

namespace trainyard {

// Steps follow one another without a gap. So the seconds of all steps of a rank that is alone, and
// of the pauses between Pause and Resume, add up to the time since Start. A pause of another rank
// is part of this rank's step, which waits for the other rank.
//
// Not thread-safe.
class StepClock {
 public:
  // The first step begins.
  void Start() { begin_ = Clock::now(); }

  // Pause begins work that is not part of a step: waiting for data, a validation, a checkpoint.
  // Resume ends this work and returns its seconds.
  void Pause() { paused_ = Clock::now(); }
  double Resume() {
    const Clock::duration pause = Clock::now() - paused_;
    begin_ += pause;
    return Seconds(pause).count();
  }

  // Ends this rank's step, and returns its seconds.
  double End() {
    ended_ = Clock::now();
    return Seconds(ended_ - begin_).count();
  }

  // Begins the next step, once the ranks have compared their seconds. The slowest rank ended its
  // step `waited` seconds after this rank. The wait belongs to the step before, so the next step
  // begins after the wait. The next step never begins later than now.
  void BeginNext(double waited) {
    const auto wait = std::chrono::duration_cast<Clock::duration>(Seconds(waited));
    begin_ = std::min(ended_ + wait, Clock::now());
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;

  Clock::time_point begin_, paused_, ended_;
};

}  // namespace trainyard
