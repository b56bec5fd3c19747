// Ops that add to one of their inputs where it lies (Op::MayAlias).

#pragma once

#include <utility>

#include "kernels/elementwise/copy_columns.h"
#include "models/program/binder.h"

namespace trainyard::ops {

// Returns a call that copies the input to the output, if the plan gave the two different memory:
// another instance reads the input later. Otherwise there is nothing to do, and the call is empty.
inline Call CopyUnlessInPlace(const Binder& binder, Value input, Value output) {
  const Tensor from = binder.tensor(input), to = binder.tensor(output);
  if (from.data == to.data) return nullptr;
  return binder.Kernel(
      CopyColumnsArgs{.x = from, .x_begin = 0, .y = to, .y_begin = 0, .columns = to.shape.back()});
}

// Returns both calls as one. `first` may be empty.
inline Call After(Call first, Call second) {
  if (first == nullptr) return second;
  return [first = std::move(first), second = std::move(second)](Exec& exec) {
    first(exec);
    second(exec);
  };
}

}  // namespace trainyard::ops
