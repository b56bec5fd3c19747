// Boxes of a global tensor: per dim, the elements [offset, offset + extent). Memory of a box has
// its rows contiguous.

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

// Copies so many bytes between the host's memory and a device's that boxes lie in; null: they lie
// in the host's.
using BoxCopy = std::function<void(void* to, const void* from, size_t bytes)>;

Box WholeBox(const Shape& shape);
std::optional<Box> Intersection(const Box& a, const Box& b);  // None where they share no element.
// Two of the boxes, all of one rank, that share an element; none where no two do. Sorts them.
// n log n up to two dims; beyond, n times those that share an index of dim 0.
std::optional<std::pair<Box, Box>> FindOverlap(std::span<Box> boxes);
std::string ToString(const Shape& shape);  // "[2, 3]"
std::string ToString(const Box& box);      // "[0, 0] + [2, 3]"

// Calls run(from, to, count) for each maximal stretch of elements that both boxes share and that is
// contiguous in the memory of both: `from` and `to` are element offsets in the memory of `source`
// and `target`. Stops at the first error.
template <typename Run>
absl::Status ForEachSharedRun(const Box& source, const Box& target, Run&& run);

// The element of `box`'s memory at which global position `at` lies.
int64_t MemoryIndex(const Box& box, const Shape& at);

// Implementation.

template <typename Run>
absl::Status ForEachSharedRun(const Box& source, const Box& target, Run&& run) {
  const std::optional<Box> shared = Intersection(source, target);
  if (!shared) return absl::OkStatus();
  // Dims behind `outer` are whole in both boxes, so a stretch runs through all of them.
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
