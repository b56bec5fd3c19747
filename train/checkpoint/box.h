// Boxes of a global tensor. A box has, per dim, the elements [offset, offset + extent). The memory
// of a box has contiguous rows.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "kernels/device/tensor.h"

namespace trainyard {

struct Box {
  Shape offset;
  Shape extent;

  int64_t elements() const { return extent.elements(); }
  bool operator==(const Box&) const = default;
};

// Copies bytes between the host's memory and the memory of the device that holds the boxes. Null:
// the boxes lie in the host's memory.
using BoxCopy = std::function<void(void* to, const void* from, size_t bytes)>;

Box WholeBox(const Shape& shape);
std::optional<Box> Intersection(const Box& a, const Box& b);  // Nullopt: no common element.
// Returns two of the boxes that share an element, or nullopt if no two do. Sorts the boxes. For
// tensors of up to two dims this takes n log n steps. With more dims, each box is also compared
// with all boxes that share an index of dim 0.
std::optional<std::pair<Box, Box>> FindOverlap(std::span<Box> boxes);
std::string ToString(const Shape& shape);  // "[2, 3]"
std::string ToString(const Box& box);      // "[0, 0] + [2, 3]"

// Calls run(from, to, count) for each maximal run of elements that both boxes share and that is
// contiguous in the memory of both. `from` and `to` are element offsets in the memory of `source`
// and `target`. Stops at the first error and returns it.
template <typename Run>
absl::Status ForEachSharedRun(const Box& source, const Box& target, Run&& run);

// The index in `box`'s memory of the element at global position `at`.
int64_t MemoryIndex(const Box& box, const Shape& at);

// Implementation.

template <typename Run>
absl::Status ForEachSharedRun(const Box& source, const Box& target, Run&& run) {
  const std::optional<Box> shared = Intersection(source, target);
  if (!shared) return absl::OkStatus();
  // Dims after `outer` are whole in both boxes, so a run goes through all of them.
  int outer = shared->extent.rank() - 1;
  int64_t count = outer < 0 ? 1 : shared->extent[outer];
  while (outer > 0 && shared->extent[outer] == source.extent[outer] &&
         shared->extent[outer] == target.extent[outer]) {
    --outer;
    count *= shared->extent[outer];
  }
  Shape at = shared->offset;
  for (;;) {
    if (absl::Status status = run(MemoryIndex(source, at), MemoryIndex(target, at), count);
        !status.ok()) {
      return status;
    }
    int dim = outer - 1;
    while (dim >= 0 && at[dim] + 1 == shared->offset[dim] + shared->extent[dim]) {
      at = at.With(dim, shared->offset[dim]);
      --dim;
    }
    if (dim < 0) return absl::OkStatus();
    at = at.With(dim, at[dim] + 1);
  }
}

}  // namespace trainyard
