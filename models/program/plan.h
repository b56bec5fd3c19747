// The place of every value of a program, found without a device. So the memory that a rank needs is
// known before anything is allocated.
//
// Parameters and gradients lie in the flat buffers. Constants have their own arena. The values of a
// micro-batch lie in the arena of its slot, one for each chunk; values that are never live at the
// same time share memory. Values that live within one action share one arena for all slots. If
// there is one chunk with one slot, these values use the slot's arena.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/program/program.h"

namespace trainyard {

enum class Arena : uint8_t { kNone, kConstant, kSlot, kScratch };

struct Placement {
  Arena arena = Arena::kNone;  // kNone: in a flat buffer, or not used.
  int chunk = 0;               // For kSlot.
  size_t offset = 0;           // Bytes; a multiple of kPlanAlignment.
};
inline constexpr size_t kPlanAlignment = 256;

struct PlanOptions {
  std::vector<int> slots = {};  // Number of micro-batches in flight, by chunk; empty: one each.
  // The weight gradients of a micro-batch may be computed any time after its backward-input list.
  bool split_backward = false;
  bool gpu = false;  // The program runs on a GPU, whose libraries need memory of their own.
};

struct MemoryPlan {
  std::vector<int> slots;                               // By chunk.
  std::vector<Placement> placements;                    // By value id.
  size_t constant_bytes = 0;                            // Step constants included.
  size_t rounded_bytes = 0;                             // Of constant_bytes: rounded weights.
  std::vector<size_t> slot_bytes;                       // One slot's, by chunk.
  size_t scratch_bytes = 0;                             // All slots together.
  std::array<size_t, kNumFlatBuffers> flat_bytes = {};  // 0: the buffer is not on the device.
  // Of the same buffers, in the memory of the device's host (Program::host_elements).
  std::array<size_t, kNumFlatBuffers> host_bytes = {};
  size_t workspace_bytes = 0;  // Kept by kernels (Op::KeptOnGpu), which allocate it themselves.

  // On the device: of the flat buffers (weights, gradients, optimizer state), of the values of
  // micro-batches, and of everything.
  size_t parameter_bytes() const;
  size_t activation_bytes() const;
  size_t total_bytes() const {
    return parameter_bytes() + activation_bytes() + constant_bytes + workspace_bytes;
  }
  size_t host_total_bytes() const;  // Of the flat buffers in the host's memory.
  // "1.2 GiB (parameters, gradients and optimizer state ..., activations ..., rounded weights ...,
  // workspace ...)", without the last two if there are none, and followed by " and ... of the host
  // (optimizer state)" if some is there.
  std::string Summary() const;
};

// Places values by best fit over their lives. CHECKs that no two live values overlap.
MemoryPlan PlanMemory(const Program& program, const PlanOptions& options = {});

}  // namespace trainyard
