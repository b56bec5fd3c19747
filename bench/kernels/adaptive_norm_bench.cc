#include "bench/kernels/bench.h"
#include "kernels/norms/adaptive_norm.h"

namespace trainyard::bench::adaptive_norm {

// The sizes of DiT-XL/2, with 256 tokens a sample.
constexpr int64_t kSamples = 16, kT = kSamples * 256, kD = 1152;
constexpr SampleRows kRows = {.per_sample = kT / kSamples};

void AdaptiveNormForward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {kT, kD});
  Measure(state,
          AdaptiveNormForwardArgs{.x = x,
                                  .shift = o.Make(dtype, {kSamples, kD}),
                                  .scale = o.Make(dtype, {kSamples, kD}),
                                  .rows = kRows,
                                  .eps = 1e-6,
                                  .y = o.Make(dtype, {kT, kD}),
                                  .mean = o.Make(DType::kF32, {kT}),
                                  .rstd = o.Make(DType::kF32, {kT})},
          {.bytes = 2.0 * double(x.bytes())});
}
BENCHMARK(AdaptiveNormForward)->Apply(Trained);

void AdaptiveNormBackward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {kT, kD});
  Measure(state,
          AdaptiveNormBackwardArgs{.dy = o.Make(dtype, {kT, kD}),
                                   .x = x,
                                   .scale = o.Make(dtype, {kSamples, kD}),
                                   .mean = o.Make(DType::kF32, {kT}),
                                   .rstd = o.Make(DType::kF32, {kT}),
                                   .rows = kRows,
                                   .dx = o.Make(dtype, {kT, kD}),
                                   .dshift = o.Make(dtype, {kSamples, kD}),
                                   .dscale = o.Make(dtype, {kSamples, kD})},
          {.bytes = 3.0 * double(x.bytes())});
}
BENCHMARK(AdaptiveNormBackward)->Apply(Trained);

}  // namespace trainyard::bench::adaptive_norm
