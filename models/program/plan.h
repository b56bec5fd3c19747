// Where everything of a program lies, found without a device: the memory that a rank needs before
// anything is allocated.
//
// Parameters and gradients lie in the flat buffers. Constants have an arena of their own. Values of
// a micro-batch lie in an arena of its slot, one for each chunk, where values that are never live
// together share memory. Values that live within one action have one arena for all slots; with one
// slot of one chunk they share that one's.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/program/program.h"

namespace trainyard {

enum class Arena : uint8_t { kNone, kConstant, kSlot, kScratch };

struct Placement {
  Arena arena = Arena::kNone;  // kNone: in a flat buffer, or unused.
  int chunk = 0;               // Of kSlot.
  size_t offset = 0;           // Bytes; a multiple of kPlanAlignment.
};
inline constexpr size_t kPlanAlignment = 256;

struct PlanOptions {
  std::vector<int> slots = {};  // Micro-batches in flight, by chunk; empty: one each.
  // The weight gradients of a micro-batch may be computed any time after its backward-input list.
  bool split_backward = false;
  bool gpu = false;  // The program runs on a GPU, whose libraries want memory of their own.
};

struct MemoryPlan {
  std::vector<int> slots;             // By chunk.
  std::vector<Placement> placements;  // By value id.
  size_t constant_bytes = 0;
  std::vector<size_t> slot_bytes;                       // Of one slot, by chunk.
  size_t scratch_bytes = 0;                             // Of all.
  std::array<size_t, kNumFlatBuffers> flat_bytes = {};  // 0: not there.
  size_t workspace_bytes = 0;  // That kernels keep (Op::KeptOnGpu), and allocate themselves.

  size_t parameter_bytes() const;  // All flat buffers: weights, gradients, optimizer state.
  size_t activation_bytes() const;
  size_t total_bytes() const {
    return parameter_bytes() + activation_bytes() + constant_bytes + workspace_bytes;
  }
  // "1.2 GiB (parameters, gradients and optimizer state ..., activations ..., workspace ...)"
  std::string Summary() const;
};

// Best-fit offsets over the values' lives. Checks its own result: no two live values overlap.
MemoryPlan PlanMemory(const Program& program, const PlanOptions& options = {});

}  // namespace trainyard
