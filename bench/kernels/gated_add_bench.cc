#include "bench/kernels/bench.h"
#include "kernels/elementwise/gated_add.h"

namespace trainyard::bench::gated_add {

// The sizes of DiT-XL/2, with 256 tokens a sample.
constexpr int64_t kSamples = 16, kT = kSamples * 256, kD = 1152;
constexpr SampleRows kRows = {.per_sample = kT / kSamples};

void GatedAddForward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {kT, kD});
  Measure(state,
          GatedAddForwardArgs{.x = x,
                              .gate = o.Make(dtype, {kSamples, kD}),
                              .h = o.Make(dtype, {kT, kD}),
                              .rows = kRows,
                              .y = o.Make(dtype, {kT, kD})},
          {.bytes = 3.0 * double(x.bytes())});
}
BENCHMARK(GatedAddForward)->Apply(Trained);

void GatedAddBackward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor dy = o.Make(dtype, {kT, kD});
  Measure(state,
          GatedAddBackwardArgs{.dy = dy,
                               .gate = o.Make(dtype, {kSamples, kD}),
                               .h = o.Make(dtype, {kT, kD}),
                               .rows = kRows,
                               .dh = o.Make(dtype, {kT, kD}),
                               .dgate = o.Make(dtype, {kSamples, kD})},
          {.bytes = 3.0 * double(dy.bytes())});
}
BENCHMARK(GatedAddBackward)->Apply(Trained);

}  // namespace trainyard::bench::gated_add
