// How a parameter is divided over the mesh: along one dim.

#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "models/parallel/axis.h"

namespace trainyard {

struct Shard {
  AxisSet axes;  // Divided over the product of these axes, in rank order; empty: not divided.
  int dim = 0;
  // The dim consists of sections of these sizes, and each section is divided by itself. For
  // example, a query/key/value matrix that a public checkpoint holds under one name has three
  // sections. Empty: the dim is one section.
  std::vector<int64_t> sections = {};

  static Shard None() { return {}; }
  static Shard Rows(AxisSet axes, std::vector<int64_t> sections = {}) {
    return {.axes = axes, .dim = 0, .sections = std::move(sections)};
  }
  static Shard Columns(AxisSet axes) { return {.axes = axes, .dim = 1}; }
  bool operator==(const Shard&) const = default;
};

}  // namespace trainyard
