// A tensor for tests of boxes, whose parts are found without the code under test.

#pragma once

#include <numeric>
#include <span>
#include <vector>

#include "common/rng.h"
#include "train/checkpoint/box.h"

namespace trainyard::testing_checkpoint {

// A tensor "t" of random shape, of so many different sizes, whose elements are all different.
struct RandomTensor {
  RandomTensor(uint64_t trial, uint64_t sizes) : trial(trial), rank(1 + int(trial % 4)) {
    std::vector<int64_t> dims;
    for (int i = 0; i < rank; ++i) dims.push_back(2 + Random(sizes));
    shape = Shape{std::span<const int64_t>(dims)};
    values.resize(size_t(shape.elements()));
    std::iota(values.begin(), values.end(), 0.5);
  }

  int64_t Random(uint64_t below) { return int64_t(RandomBits(11, trial, drawn++) % below); }

  Box RandomBox() {
    Box box = WholeBox(shape);
    for (int i = 0; i < rank; ++i) {
      box.offset = box.offset.With(i, Random(uint64_t(shape[i])));
      box.extent = box.extent.With(i, 1 + Random(uint64_t(shape[i] - box.offset[i])));
    }
    return box;
  }

  // The elements of a box, found one by one.
  std::vector<double> Cut(const Box& box) const {
    std::vector<double> out(size_t(box.elements()), -1);
    for (int64_t e = 0; e < shape.elements(); ++e) {
      Shape at = shape;
      int64_t rest = e;
      bool inside = true;
      for (int i = rank - 1; i >= 0; --i) {
        at = at.With(i, rest % shape[i]);
        rest /= shape[i];
        inside &= at[i] >= box.offset[i] && at[i] < box.offset[i] + box.extent[i];
      }
      if (inside) out[size_t(MemoryIndex(box, at))] = values[size_t(e)];
    }
    return out;
  }

  uint64_t trial;
  int rank;
  uint64_t drawn = 0;
  Shape shape;
  std::vector<double> values;
};

}  // namespace trainyard::testing_checkpoint
