#include "bench/kernels/bench.h"
#include "kernels/experts/grouped_bias.h"

namespace trainyard::bench::grouped_bias {

constexpr int64_t kR = 4096, kN = 2880, kGroups = 32;

// Offsets that give each group the same number of rows.
Tensor Even(Operands& o) {
  return o.MakeOf({kGroups + 1}, [](int64_t g) { return int32_t(g * (kR / kGroups)); });
}

void GroupedBiasForward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor y = o.Make(dtype, {kR, kN});
  Measure(state,
          GroupedBiasForwardArgs{.bias = o.Make(dtype, {kGroups, kN}),
                                 .w = o.Make(DType::kF32, {kR}),
                                 .offsets = Even(o),
                                 .y = y},
          {.bytes = double(2 * y.bytes())});
}
BENCHMARK(GroupedBiasForward)->Apply(Trained);

void GroupedBiasGradient(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor dy = o.Make(dtype, {kR, kN});
  Measure(state,
          GroupedBiasGradientArgs{.dy = dy,
                                  .w = o.Make(DType::kF32, {kR}),
                                  .offsets = Even(o),
                                  .dbias = o.Make(DType::kF32, {kGroups, kN}),
                                  .write = Write::kOverwrite},
          {.bytes = double(dy.bytes())});
}
BENCHMARK(GroupedBiasGradient)->Apply(Trained);

void GroupedBiasFactorGradient(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor dy = o.Make(dtype, {kR, kN});
  Measure(state,
          GroupedBiasFactorGradientArgs{.dy = dy,
                                        .bias = o.Make(dtype, {kGroups, kN}),
                                        .offsets = Even(o),
                                        .dw = o.Make(DType::kF32, {kR})},
          {.bytes = double(dy.bytes())});
}
BENCHMARK(GroupedBiasFactorGradient)->Apply(Trained);

}  // namespace trainyard::bench::grouped_bias
