// The magnitudes of a projection of a model of 8 billion parameters, with an adapter of rank 16.

#include "bench/kernels/bench.h"
#include "kernels/norms/magnitude.h"
#include "kernels/products/low_rank_squares.h"

namespace trainyard::bench::magnitude {

constexpr int64_t kT = 4096, kN = 4096, kK = 4096, kR = 16;

void LowRankSquares(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor w = o.Make(dtype, {kN, kK});
  Measure(state,
          LowRankSquaresArgs{.w = w,
                             .a = o.Make(dtype, {kR, kK}),
                             .b = o.Make(dtype, {kN, kR}),
                             .scale = 2,
                             .squares = o.Make(DType::kF32, {kN, 2})},
          {.bytes = double(w.bytes())});
}
BENCHMARK(LowRankSquares)->Apply(Trained);

void MagnitudeForward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor z = o.Make(dtype, {kT, kN});
  Measure(
      state,
      MagnitudeForwardArgs{.z = z, .gain = o.Make(DType::kF32, {kN}), .y = o.Make(dtype, z.shape)},
      {.bytes = 2 * double(z.bytes())});
}
BENCHMARK(MagnitudeForward)->Apply(Trained);

void MagnitudeBackward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor z = o.Make(dtype, {kT, kN});
  Measure(state,
          MagnitudeBackwardArgs{.dy = o.Make(dtype, z.shape),
                                .z = z,
                                .gain = o.Make(DType::kF32, {kN}),
                                .inverse = o.Make(DType::kF32, {kN}),
                                .dz = o.Make(dtype, z.shape),
                                .doffset = o.Make(DType::kF32, {kN}),
                                .write = Write::kOverwrite},
          {.bytes = 3 * double(z.bytes())});
}
BENCHMARK(MagnitudeBackward)->Apply(Trained);

}  // namespace trainyard::bench::magnitude
