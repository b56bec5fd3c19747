// How the ranks of a job are arranged: sizes per axis, and where a rank stands.
//
// A rank's number has the digits (pipeline, data, context, tensor), tensor last: neighbours share a
// machine, and tensor parallelism talks most.

#pragma once

#include "common/check.h"
#include "models/parallel/axis.h"

namespace trainyard {

struct Mesh {
  int tensor = 1;
  int context = 1;
  int data = 1;
  int pipeline = 1;
  int rank = 0;  // This rank; 0 <= rank < ranks().

  int ranks() const { return tensor * context * data * pipeline; }
  int size(Axis axis) const;
  int coordinate(Axis axis) const;  // Of this rank.
  AxisSet active() const;           // The axes with more than one rank.
};

inline int Mesh::size(Axis axis) const {
  switch (axis) {
    case Axis::kTensor:
      return tensor;
    case Axis::kContext:
      return context;
    case Axis::kData:
      return data;
    case Axis::kPipeline:
      return pipeline;
  }
  return 1;
}

inline int Mesh::coordinate(Axis axis) const {
  CHECK(rank >= 0 && rank < ranks()) << "rank " << rank << " of " << ranks();
  int digit = rank;
  for (Axis inner : kAllAxes) {
    if (inner == axis) break;
    digit /= size(inner);
  }
  return digit % size(axis);
}

inline AxisSet Mesh::active() const {
  AxisSet set;
  for (Axis axis : kAllAxes) {
    if (size(axis) > 1) set = set | AxisSet{axis};
  }
  return set;
}

}  // namespace trainyard
