#include "train/checkpoint/box.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace trainyard {

Box WholeBox(const Shape& shape) {
  Box box{shape, shape};
  for (int i = 0; i < shape.rank(); ++i) box.offset = box.offset.With(i, 0);
  return box;
}

std::optional<Box> Intersection(const Box& a, const Box& b) {
  CHECK(a.extent.rank() == b.extent.rank()) << a.extent << " and " << b.extent;
  Box shared = a;
  for (int i = 0; i < a.extent.rank(); ++i) {
    const int64_t begin = std::max(a.offset[i], b.offset[i]);
    const int64_t end = std::min(a.offset[i] + a.extent[i], b.offset[i] + b.extent[i]);
    if (begin >= end) return std::nullopt;
    shared.offset = shared.offset.With(i, begin);
    shared.extent = shared.extent.With(i, end - begin);
  }
  return shared;
}

std::optional<std::pair<Box, Box>> FindOverlap(std::span<Box> boxes) {
  if (boxes.size() < 2) return std::nullopt;
  const int rank = boxes[0].extent.rank();
  if (rank == 0) return std::pair(boxes[0], boxes[1]);  // Both are the tensor's only element.
  std::sort(boxes.begin(), boxes.end(),
            [](const Box& a, const Box& b) { return a.offset[0] < b.offset[0]; });
  // A sweep along dim 0. `open` has the boxes at the current position by their begin in dim 1, and
  // `ends` finds the box that ends next.
  std::multimap<int64_t, const Box*> open;
  std::multimap<int64_t, decltype(open)::iterator> ends;
  for (const Box& box : boxes) {
    while (!ends.empty() && ends.begin()->first <= box.offset[0]) {
      open.erase(ends.begin()->second);
      ends.erase(ends.begin());
    }
    const int64_t begin = rank > 1 ? box.offset[1] : 0, extent = rank > 1 ? box.extent[1] : 1;
    for (auto it = open.lower_bound(begin + extent); it != open.begin();) {
      --it;
      if (Intersection(*it->second, box)) return std::pair(*it->second, box);
      // In two dims open boxes are disjoint intervals, so those before this one end before it
      // begins.
      if (rank <= 2) break;
    }
    ends.emplace(box.offset[0] + box.extent[0], open.emplace(begin, &box));
  }
  return std::nullopt;
}

std::string ToString(const Shape& shape) {
  std::ostringstream text;
  text << shape;
  return text.str();
}

std::string ToString(const Box& box) {
  return absl::StrCat(ToString(box.offset), " + ", ToString(box.extent));
}

int64_t MemoryIndex(const Box& box, const Shape& at) {
  int64_t index = 0;
  for (int i = 0; i < at.rank(); ++i) index = index * box.extent[i] + (at[i] - box.offset[i]);
  return index;
}

}  // namespace trainyard
