// The router of 4096 tokens that choose 8 of 128 experts.

#include "bench/kernels/bench.h"
#include "kernels/experts/router.h"

namespace trainyard::bench::router {

constexpr int64_t kT = 4096, kE = 128;
constexpr RouterOptions kOptions = {.top_k = 8, .normalize = true};

Tensor Logits(Operands& o) {
  return o.MakeOf({kT, kE}, [](int64_t i) { return float(i * 7919 % 1009) / 500; });
}

void RouterForward(benchmark::State& state) {
  Operands o;
  const Tensor logits = Logits(o);
  Measure(state,
          RouterForwardArgs{.logits = logits,
                            .options = kOptions,
                            .experts = o.Make(DType::kI32, {kT, kOptions.top_k}),
                            .weights = o.Make(DType::kF32, {kT, kOptions.top_k})},
          {.bytes = double(logits.bytes())});
}
BENCHMARK(RouterForward)->UseManualTime()->Unit(benchmark::kMicrosecond);

void RouterBackward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor logits = Logits(o), dlogits = o.Make(dtype, {kT, kE});
  const Tensor experts = o.MakeOf({kT, kOptions.top_k}, [](int64_t i) { return int32_t(i % kE); });
  Measure(state,
          RouterBackwardArgs{.logits = logits,
                             .experts = experts,
                             .dweights = o.Make(DType::kF32, experts.shape),
                             .options = kOptions,
                             .dlogits = dlogits},
          {.bytes = double(logits.bytes() + dlogits.bytes())});
}
BENCHMARK(RouterBackward)->Apply(Trained);

}  // namespace trainyard::bench::router
