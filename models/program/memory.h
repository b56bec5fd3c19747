// The memory of a planned program on one device, and of its state that lies in the host's memory.
// All memory is allocated at once; the functions return the place of each value in it.

#pragma once

#include <array>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device/backend.h"
#include "kernels/device/step_state.h"
#include "models/program/plan.h"
#include "models/program/program.h"

namespace trainyard {

// Move-only. Addresses are fixed. The functions return views, which do not own memory.
class ProgramMemory {
 public:
  // `program` must outlive the result. RESOURCE_EXHAUSTED: the memory cannot be allocated; the
  // message has the planned bytes.
  static absl::StatusOr<ProgramMemory> Allocate(const Program& program, const MemoryPlan& plan,
                                                const Backend& backend);

  Tensor tensor(Value value, int slot) const;
  // A view with one dim. The range must lie in the buffer in one piece (Program::place).
  Tensor flat(FlatBuffer buffer, const FlatRange& range) const;
  // The trainable parameters in a range, as forward and backward read them.
  Tensor weight(const FlatRange& range) const;
  // A view with one dim of a range of frozen parameters in kFrozen or kFrozenWindow.
  Tensor frozen(FlatBuffer buffer, const FlatRange& bytes, DType dtype) const;
  StepState* step_state() const { return reinterpret_cast<StepState*>(step_state_.data()); }
  const MemoryPlan& plan() const { return plan_; }

 private:
  ProgramMemory(const Program& program, const MemoryPlan& plan) : program_(&program), plan_(plan) {}
  int64_t Find(FlatBuffer buffer, const FlatRange& range) const;

  const Program* program_;
  MemoryPlan plan_;
  std::array<Buffer, kNumFlatBuffers> flat_;
  std::array<Buffer, kNumFlatBuffers> host_;  // Their first elements, Program::host_elements.
  Buffer constants_;
  Buffer scratch_;
  std::vector<std::vector<Buffer>> slots_;  // By chunk and slot.
  Buffer step_state_;
};

}  // namespace trainyard
