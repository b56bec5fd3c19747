#include "bench/kernels/bench.h"
#include "kernels/norms/layer_norm.h"

namespace trainyard::bench::layer_norm {

constexpr int64_t kT = 4096, kD = 768;

void LayerNormForward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {kT, kD});
  Measure(state,
          LayerNormForwardArgs{.x = x,
                               .gain = o.Make(dtype, {kD}),
                               .bias = o.Make(dtype, {kD}),
                               .eps = 1e-5,
                               .y = o.Make(dtype, {kT, kD}),
                               .mean = o.Make(DType::kF32, {kT}),
                               .rstd = o.Make(DType::kF32, {kT})},
          {.bytes = 2.0 * double(x.bytes())});
}
BENCHMARK(LayerNormForward)->Apply(Trained);

void LayerNormBackward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {kT, kD});
  Measure(state,
          LayerNormBackwardArgs{.dy = o.Make(dtype, {kT, kD}),
                                .x = x,
                                .gain = o.Make(dtype, {kD}),
                                .mean = o.Make(DType::kF32, {kT}),
                                .rstd = o.Make(DType::kF32, {kT}),
                                .dx = o.Make(dtype, {kT, kD}),
                                .dgain = o.Make(DType::kF32, {kD}),
                                .dbias = o.Make(DType::kF32, {kD}),
                                .write = Write::kOverwrite},
          {.bytes = 3.0 * double(x.bytes())});
}
BENCHMARK(LayerNormBackward)->Apply(Trained);

// Adds a branch's output to the residual stream and normalises the sum: reads two tensors, writes
// two.
void AddLayerNormForward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {kT, kD});
  Measure(state,
          LayerNormForwardArgs{.x = x,
                               .gain = o.Make(dtype, {kD}),
                               .bias = o.Make(dtype, {kD}),
                               .eps = 1e-5,
                               .y = o.Make(dtype, {kT, kD}),
                               .mean = o.Make(DType::kF32, {kT}),
                               .rstd = o.Make(DType::kF32, {kT}),
                               .addend = o.Make(dtype, {kT, kD}),
                               .sum = o.Make(dtype, {kT, kD})},
          {.bytes = 4.0 * double(x.bytes())});
}
BENCHMARK(AddLayerNormForward)->Apply(Trained);

void AddLayerNormBackward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {kT, kD});
  Measure(state,
          LayerNormBackwardArgs{.dy = o.Make(dtype, {kT, kD}),
                                .x = x,
                                .gain = o.Make(dtype, {kD}),
                                .mean = o.Make(DType::kF32, {kT}),
                                .rstd = o.Make(DType::kF32, {kT}),
                                .dx = o.Make(dtype, {kT, kD}),
                                .dgain = o.Make(DType::kF32, {kD}),
                                .dbias = o.Make(DType::kF32, {kD}),
                                .write = Write::kOverwrite,
                                .dsum = o.Make(dtype, {kT, kD})},
          {.bytes = 4.0 * double(x.bytes())});
}
BENCHMARK(AddLayerNormBackward)->Apply(Trained);

}  // namespace trainyard::bench::layer_norm
