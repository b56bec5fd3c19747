// What the activations of experts share: see scaled_swiglu.h and scaled_squared_relu.h. The number
// of rows is read on the device. A block takes whole rows, because dw is a sum over the row.

#pragma once

#include "kernels/cuda/failure.h"
#include "kernels/cuda/rows.h"

namespace trainyard::cuda {

// Returns the number of rows, *args.count. If it is not one of 0 to args.bound, the kernel fails
// with the message, which has places for both numbers.
template <typename Args>
__device__ int64_t RowsOf(const Args& args, const Message<2>& message) {
  const int64_t rows = *args.count;
  if (rows < 0 || rows > args.bound) args.fail(message, rows, args.bound);
  return rows;
}

// Launches the kernel that moves packs of T, or the one that moves single elements. Args has the
// sizes `bound` and `f`.
template <typename T, typename Args>
void LaunchRows(Exec& exec, const Args& args, bool packed, void (*packs)(Args),
                void (*scalars)(Args)) {
  const int64_t columns = packed ? args.f / kPackOf<T> : args.f;
  Launch(exec, {RowBlocks(args.bound), RowThreads(columns, 256)}, packed ? packs : scalars, args);
}

}  // namespace trainyard::cuda
