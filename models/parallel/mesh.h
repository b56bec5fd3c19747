// How the ranks of a job are arranged: sizes per axis, and where a rank stands.
//
// A rank's number has the digits (pipeline, data, expert, context, tensor), tensor last: neighbours
// share a machine, and tensor parallelism talks most. Expert ranks are part of the data-parallel
// ones: the tokens of a batch are spread over both.

#pragma once

#include <vector>

#include "models/parallel/axis.h"

namespace trainyard {

struct Mesh {
  int tensor = 1;
  int kv_replicas = 1;  // Divides tensor: so many of its ranks share each key/value head.
  int context = 1;
  int data = 1;    // Expert ranks included.
  int expert = 1;  // Divides data.
  // Over which a mixture's experts are divided.
  AxisSet expert_axes = kTensorAxes | Axis::kExpert;
  int pipeline = 1;
  // Pipeline stages that share tied weights, ascending. Empty if no two do. KeepStage finds them.
  std::vector<int> sharing_stages = {};
  int rank = 0;  // This rank; 0 <= rank < ranks().

  int ranks() const { return tensor * context * data * pipeline; }
  int size(AxisSet axes) const;  // Product of the axes' sizes.
  // Of this rank within the ranks that differ from it along these axes alone, in rank order.
  int coordinate(AxisSet axes) const;
  AxisSet active() const;  // The axes with more than one rank.
  // Those ranks' numbers. {kEnds}: of the stages that share, this rank's among them.
  std::vector<int> Members(AxisSet axes) const;

  bool operator==(const Mesh&) const = default;
};

}  // namespace trainyard
