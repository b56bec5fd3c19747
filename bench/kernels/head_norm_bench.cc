// 8 query and 2 key/value heads of 128 columns.

#include "bench/kernels/bench.h"
#include "kernels/norms/head_norm.h"

namespace trainyard::bench::head_norm {

constexpr int64_t kT = 4096, kA = 8, kG = 2, kD = 128, kWidth = (kA + 2 * kG) * kD;

void HeadNormForward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {kT, kWidth}), y = o.Make(dtype, {kT, kWidth});
  Measure(state,
          HeadNormForwardArgs{.x = x,
                              .q_gain = o.Make(dtype, {kD}),
                              .k_gain = o.Make(dtype, {kD}),
                              .heads = kA,
                              .kv_heads = kG,
                              .eps = 1e-6,
                              .y = y,
                              .rstd = o.Make(DType::kF32, {kT, kA + kG})},
          {.bytes = double(x.bytes() + y.bytes())});
}
BENCHMARK(HeadNormForward)->Apply(Trained);

void HeadNormBackward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {kT, kWidth}), dy = o.Make(dtype, {kT, kWidth});
  Measure(state,
          HeadNormBackwardArgs{.dy = dy,
                               .x = x,
                               .q_gain = o.Make(dtype, {kD}),
                               .k_gain = o.Make(dtype, {kD}),
                               .rstd = o.Make(DType::kF32, {kT, kA + kG}),
                               .heads = kA,
                               .kv_heads = kG,
                               .dx = o.Make(dtype, {kT, kWidth}),
                               .dq_gain = o.Make(DType::kF32, {kD}),
                               .dk_gain = o.Make(DType::kF32, {kD}),
                               .write = Write::kOverwrite},
          {.bytes = 3.0 * double(x.bytes())});
}
BENCHMARK(HeadNormBackward)->Apply(Trained);

}  // namespace trainyard::bench::head_norm
