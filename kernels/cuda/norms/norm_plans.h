// Which form of their kernels layer norm and RMS norm take for a row (row.h). Tests ask here
// whether the widths of published models have forms that hold rows in registers.

#pragma once

#include "kernels/cuda/row.h"
#include "kernels/norms/layer_norm.h"
#include "kernels/norms/rms_norm.h"

namespace trainyard::cuda {

// The most packs that a thread holds, and the most threads of a block that holds so many. With more
// of either, registers would spill.
struct LayerNormForwardForms {
  static constexpr int kMostHeld = 4, kMostThreads = 512;
  // With so many threads, no registers are left for gain and bias, which are read again for each
  // row. Rows of 18,432 elements of bf16 need all these threads.
  static constexpr int kWideThreads = 576;
};
struct LayerNormBackwardForms {
  static constexpr int kMostHeld = 4, kMostThreads = 384;
  // Neither for the sums of columns, which are in shared memory: 147 KiB at most.
  static constexpr int kWideThreads = 576;
};
template <typename T>
struct RmsNormForwardForms {
  static constexpr int kMostHeld = sizeof(T) == 8 ? 4 : 8, kMostThreads = 320;
};
struct RmsNormBackwardForms {
  static constexpr int kMostHeld = 4, kMostThreads = 512;
};

// The plan of layer norm's common forms, or else of the wide one.
template <typename T, typename Forms, typename... Pointers>
RowPlan PlanCommonOrWide(int64_t columns, const Pointers*... pointers) {
  const RowPlan plan = PlanRows<T, Forms::kMostHeld, Forms::kMostThreads>(columns, pointers...);
  if (plan.held > 0) return plan;
  return PlanRows<T, Forms::kMostHeld, Forms::kWideThreads>(columns, pointers...);
}
template <typename T>
RowPlan PlanOf(const LayerNormForwardArgs& args) {
  return PlanCommonOrWide<T, LayerNormForwardForms>(args.x.shape.back(), args.x.data,
                                                    args.addend.data, args.sum.data, args.gain.data,
                                                    args.bias.data, args.y.data);
}
template <typename T>
RowPlan PlanOf(const LayerNormBackwardArgs& args) {
  return PlanCommonOrWide<T, LayerNormBackwardForms>(args.x.shape.back(), args.dy.data, args.x.data,
                                                     args.gain.data, args.dsum.data, args.dx.data);
}
template <typename T>
RowPlan PlanOf(const RmsNormForwardArgs& args) {
  using Forms = RmsNormForwardForms<T>;
  return PlanRows<T, Forms::kMostHeld, Forms::kMostThreads>(args.x.shape.back(), args.x.data,
                                                            args.addend.data, args.sum.data,
                                                            args.gain.data, args.y.data);
}
template <typename T>
RowPlan PlanOf(const RmsNormBackwardArgs& args) {
  using Forms = RmsNormBackwardForms;
  return PlanRows<T, Forms::kMostHeld, Forms::kMostThreads>(
      args.x.shape.back(), args.dy.data, args.x.data, args.gain.data, args.dsum.data, args.dx.data);
}

}  // namespace trainyard::cuda
