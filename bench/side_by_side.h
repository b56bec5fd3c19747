// A training step on two devices side by side, op by op: each op gets what the reference computed
// before, and all that the op was given is compared afterwards: its results, and that it changed
// nothing else. Shapes are those of a real model, in the device's own memory.

#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device/backend.h"
#include "train/step/rank_engine.h"

namespace trainyard::bench {

// One instance, on both.
struct ComparedOp {
  const Instance* instance = nullptr;
  // Of the worst operand: the difference divided by what rounding explains; above 1 is a failure.
  double apart = 0;
  std::string where = {};   // That operand: "dqkv bf16[4096, 6144] by 0.002".
  std::string shapes = {};  // "[4096, 256] [256] to [4096, 256]"; of flat buffers, their ranges.
  std::optional<double> seconds = {};  // On the tested device; of the first with these shapes.
  bool failed() const { return !(apart <= 1); }
};

struct SideBySideOptions {
  const Backend& reference;
  const Backend& tested;
  int threads = 1;  // Of the reference.
  static constexpr double kTiming = 20e-3;
  double timing = kTiming;  // Seconds that an op is timed for; 0: not at all.
  // Told before an op runs and after it has been compared: whoever waits sees where it hangs.
  std::function<void(const Instance&)> begins = [](const Instance&) {};
  std::function<void(const ComparedOp&)> ended = [](const ComparedOp&) {};
};

// One step of one micro-batch of `plan`, which has one rank, after its parameters are initialised.
// A profiler that watches sees the step alone. RESOURCE_EXHAUSTED where either device lacks the
// memory.
absl::StatusOr<std::vector<ComparedOp>> RunSideBySide(const RankPlan& plan, const StepState& state,
                                                      const MicroBatchData& batch,
                                                      const SideBySideOptions& options);

}  // namespace trainyard::bench
