#include "train/checkpoint/box.h"

#include <algorithm>
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
