// How ops take a matrix apart by its columns.

#pragma once

#include <utility>
#include <vector>

#include "kernels/elementwise/copy_columns.h"
#include "models/program/binder.h"
#include "models/program/ops/ring.h"

namespace trainyard::ops {

// Copies the columns of the instance's first input to its outputs, one output after another.
inline Call CopyToParts(const Binder& binder, const Instance& instance) {
  const Tensor x = binder.tensor(instance.inputs.front());
  std::vector<Call> calls;
  int64_t begin = 0;
  for (Value output : instance.outputs) {
    const Tensor y = binder.tensor(output);
    const int64_t columns = y.shape.back();
    calls.push_back(binder.Kernel(
        CopyColumnsArgs{.x = x, .x_begin = begin, .y = y, .y_begin = 0, .columns = columns}));
    begin += columns;
  }
  return InOrder(std::move(calls));
}

}  // namespace trainyard::ops
