// The convolution of Nemotron 3 Nano's Mamba-2 layers: 6144 channels, 4 taps.

#include "bench/kernels/bench.h"
#include "kernels/state_space/causal_conv.h"

namespace trainyard::bench::causal_conv {

constexpr int64_t kT = 4096, kChannels = 6144, kTaps = 4;

void CausalConvForward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {kT, kChannels}), y = o.Make(dtype, {kT, kChannels});
  Measure(state,
          CausalConvForwardArgs{.x = x,
                                .weight = o.Make(dtype, {kChannels, kTaps}),
                                .bias = o.Make(dtype, {kChannels}),
                                .sequence = kT,
                                .y = y},
          {.bytes = double(x.bytes() + y.bytes())});
}
BENCHMARK(CausalConvForward)->Apply(Trained);

void CausalConvBackward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {kT, kChannels});
  Measure(state,
          CausalConvBackwardArgs{.dy = o.Make(dtype, x.shape),
                                 .x = x,
                                 .weight = o.Make(dtype, {kChannels, kTaps}),
                                 .bias = o.Make(dtype, {kChannels}),
                                 .sequence = kT,
                                 .dx = o.Make(dtype, x.shape),
                                 .dweight = o.Make(DType::kF32, {kChannels, kTaps}),
                                 .dbias = o.Make(DType::kF32, {kChannels}),
                                 .write_dweight = Write::kOverwrite,
                                 .write_dbias = Write::kOverwrite},
          {.bytes = 3 * double(x.bytes())});
}
BENCHMARK(CausalConvBackward)->Apply(Trained);

}  // namespace trainyard::bench::causal_conv
