// Finds what memory or a device did to master weights and moments that no update did (silent
// corruption). AdamW sums the words that it reads and writes (WordSums), so that
//
//   * what a step reads must be what the step before wrote: a bit that changed in between is found
//     by its own rank, at the next update, whatever the layout;
//   * ranks that hold the same must have written the same: compared every kCompareEvery steps and
//     before each checkpoint, so that a rank which computes something else is found by the others;
//   * memory must still be what the last update wrote before a checkpoint reads it, and after a
//     step whose loss or gradient is not finite: a flipped bit, and not the job, may be the cause.
//
// Of frozen parameters, which no kernel writes, the words are summed when training begins and
// before each checkpoint: a bit that changed in between, or that a rank has otherwise than its
// replicas, is found before another checkpoint trusts it.
//
// The biases of gates are not AdamW's, and the copies that layers read live for one step: neither
// is checked. Not thread-safe.

#pragma once

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "kernels/collective/collective.h"
#include "kernels/device/step_state.h"
#include "models/program/executable.h"

namespace trainyard {

class StateCheck {
 public:
  static constexpr int64_t kCompareEvery = 100;  // Steps.

  // `everyone`: all ranks of the mesh. Both outlive the check.
  StateCheck(const Executable& executable, Collective& everyone);

  // Once, when all parameters have the values that training begins with.
  void Begin();

  // After each update, with the StepState that it left. INTERNAL names this rank, and what has
  // changed in its memory; of this rank alone.
  absl::Status AfterUpdate(const StepState& state);

  // Every rank at once, after the same step; the same status on all. INTERNAL names the ranks that
  // are not like their replicas, or whose memory changed since the update: all that disagree where
  // there is no majority. `look_at_memory`: the words in memory are summed, too. Otherwise the sums
  // that the last update made are compared, and no memory is read.
  absl::Status Compare(int64_t step, bool look_at_memory);

 private:
  WordSums SumsInMemory() const;
  uint32_t FrozenInMemory() const;

  const Executable& executable_;
  Collective& everyone_;
  std::vector<ParameterBox> checked_;
  std::vector<ParameterBox> frozen_;
  std::vector<int> replicas_;         // Ranks that hold all of the same, this one among them.
  std::vector<int> frozen_replicas_;  // The same of frozen parameters.
  uint32_t frozen_at_begin_ = 0;
  std::optional<WordSums> written_;  // By the last update.
};

}  // namespace trainyard
