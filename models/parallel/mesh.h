// How the ranks of a job are arranged: the sizes of the axes, and the place of a rank.
//
// A rank's number has the digits (pipeline, data, expert, context, tensor), tensor last.
// Neighbouring ranks share a machine, and tensor parallelism communicates most. Expert ranks are
// data-parallel ranks, too: the tokens of a batch are divided over both axes.

#pragma once

#include <vector>

#include "models/parallel/axis.h"

namespace trainyard {

struct Mesh {
  int tensor = 1;
  int kv_replicas = 1;  // Tensor ranks that hold the same key/value head. Divides tensor.
  int context = 1;
  int data = 1;    // Expert ranks included.
  int expert = 1;  // Divides data.
  // The experts of a mixture are divided over these axes.
  AxisSet expert_axes = kTensorAxes | Axis::kExpert;
  int pipeline = 1;
  // The pipeline stages that share tied weights, ascending; empty if none do. Set by KeepStage.
  std::vector<int> sharing_stages = {};
  int rank = 0;  // This rank; 0 <= rank < ranks().

  int ranks() const { return tensor * context * data * pipeline; }
  int size(AxisSet axes) const;  // Product of the axes' sizes.
  // The index of this rank among the ranks that Members(axes) lists.
  int coordinate(AxisSet axes) const;
  AxisSet active() const;  // The axes with more than one rank.
  // The numbers of the ranks, this one included, that differ from this rank along these axes alone,
  // ascending. {kEnds}: of the ranks in the stages that share tied weights.
  std::vector<int> Members(AxisSet axes) const;

  bool operator==(const Mesh&) const = default;
};

}  // namespace trainyard
