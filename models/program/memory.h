// The memory of a planned program on one device: all of it allocated at once, and where each value
// lies in it.

#pragma once

#include <array>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device/backend.h"
#include "kernels/device/step_state.h"
#include "models/program/plan.h"
#include "models/program/program.h"

namespace trainyard {

// Move-only; addresses are fixed. Gives views only.
class ProgramMemory {
 public:
  // RESOURCE_EXHAUSTED with the planned bytes. `program` must outlive the result.
  static absl::StatusOr<ProgramMemory> Allocate(const Program& program, const MemoryPlan& plan,
                                                const Backend& backend);

  Tensor tensor(Value value, int slot) const;
  // One dim. The range must lie in the buffer in one piece (Program::place).
  Tensor flat(FlatBuffer buffer, const FlatRange& range) const;
  // Of such a range of kFrozen, which counts bytes.
  Tensor frozen(const FlatRange& bytes, DType dtype) const;
  StepState* step_state() const { return reinterpret_cast<StepState*>(step_state_.data()); }
  const MemoryPlan& plan() const { return plan_; }

 private:
  ProgramMemory(const Program& program, const MemoryPlan& plan) : program_(&program), plan_(plan) {}
  int64_t Find(FlatBuffer buffer, const FlatRange& range) const;

  const Program* program_;
  MemoryPlan plan_;
  std::array<Buffer, kNumFlatBuffers> flat_;
  Buffer constants_;
  Buffer scratch_;
  std::vector<std::vector<Buffer>> slots_;  // By chunk and slot.
  Buffer step_state_;
};

}  // namespace trainyard
