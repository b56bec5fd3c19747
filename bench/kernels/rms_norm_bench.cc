#include "bench/kernels/bench.h"
#include "kernels/norms/rms_norm.h"

namespace trainyard::bench::rms_norm {

constexpr int64_t kT = 4096, kD = 768;

void RmsNormForward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {kT, kD}), y = o.Make(dtype, {kT, kD});
  Measure(state,
          RmsNormForwardArgs{.x = x,
                             .gain = o.Make(dtype, {kD}),
                             .eps = 1e-5,
                             .y = y,
                             .rstd = o.Make(DType::kF32, {kT})},
          {.bytes = double(x.bytes() + y.bytes())});
}
BENCHMARK(RmsNormForward)->Apply(Trained);

void RmsNormBackward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {kT, kD}), dy = o.Make(dtype, {kT, kD});
  Measure(state,
          RmsNormBackwardArgs{.dy = dy,
                              .x = x,
                              .gain = o.Make(dtype, {kD}),
                              .rstd = o.Make(DType::kF32, {kT}),
                              .dx = o.Make(dtype, {kT, kD}),
                              .dgain = o.Make(DType::kF32, {kD}),
                              .write = Write::kOverwrite},
          {.bytes = 3.0 * double(x.bytes())});
}
BENCHMARK(RmsNormBackward)->Apply(Trained);

// Adds a branch's output to the residual stream and normalises the sum: reads two tensors, writes
// two.
void AddRmsNormForward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {kT, kD});
  Measure(state,
          RmsNormForwardArgs{.x = x,
                             .gain = o.Make(dtype, {kD}),
                             .eps = 1e-5,
                             .y = o.Make(dtype, {kT, kD}),
                             .rstd = o.Make(DType::kF32, {kT}),
                             .addend = o.Make(dtype, {kT, kD}),
                             .sum = o.Make(dtype, {kT, kD})},
          {.bytes = 4.0 * double(x.bytes())});
}
BENCHMARK(AddRmsNormForward)->Apply(Trained);

void AddRmsNormBackward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {kT, kD});
  Measure(state,
          RmsNormBackwardArgs{.dy = o.Make(dtype, {kT, kD}),
                              .x = x,
                              .gain = o.Make(dtype, {kD}),
                              .rstd = o.Make(DType::kF32, {kT}),
                              .dx = o.Make(dtype, {kT, kD}),
                              .dgain = o.Make(DType::kF32, {kD}),
                              .write = Write::kOverwrite,
                              .dsum = o.Make(dtype, {kT, kD})},
          {.bytes = 4.0 * double(x.bytes())});
}
BENCHMARK(AddRmsNormBackward)->Apply(Trained);

}  // namespace trainyard::bench::rms_norm
