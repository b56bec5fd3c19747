// Where everything of a program lies, found without a device: the memory that a rank needs before
// anything is allocated.
//
// Parameters and gradients lie in the flat buffers. Constants have an arena of their own. Values of
// a micro-batch lie in its slot's arena, where values that are never live together share memory.
// With one slot, scratch values share that arena, too; with several, they have one for all.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/program/program.h"

namespace trainyard {

enum class Arena : uint8_t { kNone, kConstant, kSlot, kScratch };

struct Placement {
  Arena arena = Arena::kNone;  // kNone: in a flat buffer, or unused.
  size_t offset = 0;           // Bytes; a multiple of kPlanAlignment.
};
inline constexpr size_t kPlanAlignment = 256;

struct MemoryPlan {
  int slots = 1;                      // Micro-batches in flight.
  std::vector<Placement> placements;  // By value id.
  size_t constant_bytes = 0;
  size_t slot_bytes = 0;                                // Of one slot.
  size_t scratch_bytes = 0;                             // Of all.
  std::array<size_t, kNumFlatBuffers> flat_bytes = {};  // 0: not there, or shared.

  size_t parameter_bytes() const;  // All flat buffers: weights, gradients, optimizer state.
  size_t activation_bytes() const { return size_t(slots) * slot_bytes + scratch_bytes; }
  size_t total_bytes() const { return parameter_bytes() + activation_bytes() + constant_bytes; }
  std::string Summary() const;  // "parameters 1.2 GB, activations ..., total ..."
};

// Best-fit offsets over the values' lives. Checks its own result: no two live values overlap.
MemoryPlan PlanMemory(const Program& program, int slots = 1);

}  // namespace trainyard
