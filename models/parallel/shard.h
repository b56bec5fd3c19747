// How a parameter is divided over the mesh: along one dim.

#pragma once

#include <cstdint>

#include "models/parallel/axis.h"

namespace trainyard {

struct Shard {
  AxisSet axes;  // Divided over the product of these axes, in rank order; empty: not divided.
  int dim = 0;
  // The dim consists of this many equal sections, and each section is divided by itself. For
  // example, a query/key/value matrix that a public checkpoint holds under one name has three
  // sections.
  int sections = 1;

  static constexpr Shard None() { return {}; }
  static constexpr Shard Rows(AxisSet axes, int sections = 1) {
    return {.axes = axes, .dim = 0, .sections = sections};
  }
  static constexpr Shard Columns(AxisSet axes) { return {.axes = axes, .dim = 1}; }
  bool operator==(const Shard&) const = default;
};

}  // namespace trainyard
