// The gated norm of Nemotron 3 Nano's Mamba-2 layers: 4096 columns in 8 groups.

#include "bench/kernels/bench.h"
#include "kernels/norms/gated_norm.h"

namespace trainyard::bench::gated_norm {

constexpr int64_t kT = 4096, kD = 4096, kGroups = 8;

void GatedNormForward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {kT, kD});
  Measure(state,
          GatedNormForwardArgs{.x = x,
                               .z = o.Make(dtype, x.shape),
                               .gain = o.Make(dtype, {kD}),
                               .groups = kGroups,
                               .eps = 1e-5,
                               .y = o.Make(dtype, x.shape),
                               .rstd = o.Make(DType::kF32, {kT, kGroups})},
          {.bytes = 3 * double(x.bytes())});
}
BENCHMARK(GatedNormForward)->Apply(Trained);

void GatedNormBackward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {kT, kD});
  Measure(state,
          GatedNormBackwardArgs{.dy = o.Make(dtype, x.shape),
                                .x = x,
                                .z = o.Make(dtype, x.shape),
                                .gain = o.Make(dtype, {kD}),
                                .rstd = o.Make(DType::kF32, {kT, kGroups}),
                                .groups = kGroups,
                                .dx = o.Make(dtype, x.shape),
                                .dz = o.Make(dtype, x.shape),
                                .dgain = o.Make(DType::kF32, {kD}),
                                .write = Write::kOverwrite},
          {.bytes = 5 * double(x.bytes())});
}
BENCHMARK(GatedNormBackward)->Apply(Trained);

}  // namespace trainyard::bench::gated_norm
