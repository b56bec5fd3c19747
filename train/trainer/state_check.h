// Finds changes of master weights and moments that no update made (silent corruption of memory, or
// a faulty device). The optimizer's kernels sum the words that they read and write (WordSums).
// There are three checks:
//
//   * A step must read what the step before wrote. So a rank finds a bit that changed in between at
//     its next update, in every layout.
//   * Ranks that hold the same parameters must have written the same. The ranks compare their sums
//     every kCompareEvery steps and before each checkpoint. So the others find a rank that computes
//     something else.
//   * Before a checkpoint reads memory, and after a step whose loss or gradient is not finite,
//     memory must still have what the last update wrote. In the second case a flipped bit, and not
//     the job, may be the cause.
//
// No kernel writes frozen parameters. Their words are summed when training begins and before each
// checkpoint. So a bit that changed, or that differs between replicas, is found before the next
// checkpoint.
//
// Two things are not checked: the biases of routers, which the optimizer does not update, and the
// compute copies, which live for one step. Not thread-safe.

#pragma once

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "kernels/collective/collective.h"
#include "kernels/device/step_state.h"
#include "models/program/executable.h"

namespace trainyard {

// Returns the ranks that update the same parameters in the same parts, this one included. All of
// them return the same. The parts that a rank owns do not tell: a part of a bucket may be padding,
// and its owner would seem to be a replica of ranks that own more.
std::vector<int> ReplicasOf(const Program& program);

class StateCheck {
 public:
  static constexpr int64_t kCompareEvery = 100;  // Steps.

  // `everyone` must have all ranks of the mesh. Both arguments must outlive the check.
  StateCheck(const Executable& executable, Collective& everyone);

  // Call this once, when all parameters have the values with which training begins.
  void Begin();

  // Call this after each update, with the StepState that the update left. Looks at this rank only.
  // INTERNAL: names this rank, and what has changed in its memory.
  absl::Status AfterUpdate(const StepState& state);

  // Compares the ranks. Every rank must call this after the same step, and all return the same
  // status. `look_at_memory`: also sums the words in memory. Otherwise the sums of the last update
  // are compared, and no memory is read. INTERNAL: names the ranks that differ from their replicas
  // (all of them if there is no majority), or whose memory changed after the update.
  absl::Status Compare(int64_t step, bool look_at_memory);

 private:
  WordSums SumsInMemory() const;
  uint32_t FrozenInMemory() const;

  const Executable& executable_;
  Collective& everyone_;
  std::vector<ParameterBox> checked_;
  std::vector<ParameterBox> frozen_;
  std::vector<int> replicas_;         // ReplicasOf.
  std::vector<int> frozen_replicas_;  // The same for frozen parameters.
  uint32_t frozen_at_begin_ = 0;
  std::optional<WordSums> written_;  // Sums of the last update.
};

}  // namespace trainyard
