// The auxiliary loss of 4096 tokens that choose 8 of 128 experts.

#include "bench/kernels/bench.h"
#include "kernels/experts/load_balance.h"

namespace trainyard::bench::load_balance {

constexpr int64_t kT = 4096, kE = 128, kK = 8;

void LoadBalanceCounts(benchmark::State& state) {
  Operands o;
  const Tensor experts = o.MakeOf({kT, kK}, [](int64_t i) { return int32_t(i * 7919 % kE); });
  Measure(state,
          LoadBalanceCountsArgs{
              .experts = experts, .sets = {0, kT}, .counts = o.Make(DType::kF64, {kE})},
          {.bytes = double(experts.bytes())});
}
BENCHMARK(LoadBalanceCounts)->UseManualTime()->Unit(benchmark::kMicrosecond);

void LoadBalanceForward(benchmark::State& state) {
  Operands o;
  const Tensor logits = o.Make(DType::kF32, {kT, kE});
  StepState* const step = o.State({.loss_scale = 1e-6});
  Measure(state,
          LoadBalanceForwardArgs{.logits = logits,
                                 .counts = o.Make(DType::kF64, {kE}),
                                 .sets = {0, kT},
                                 .scoring = RouterScoring::kSoftmax,
                                 .coefficient = 1e-3,
                                 .state = step},
          {.bytes = double(logits.bytes())});
}
BENCHMARK(LoadBalanceForward)->UseManualTime()->Unit(benchmark::kMicrosecond);

void LoadBalanceBackward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor logits = o.Make(DType::kF32, {kT, kE}), dlogits = o.Make(dtype, {kT, kE});
  StepState* const step = o.State({.loss_scale = 1e-6});
  Measure(state,
          LoadBalanceBackwardArgs{.logits = logits,
                                  .counts = o.Make(DType::kF64, {kE}),
                                  .sets = {0, kT},
                                  .scoring = RouterScoring::kSoftmax,
                                  .coefficient = 1e-3,
                                  .state = step,
                                  .dlogits = dlogits},
          {.bytes = double(logits.bytes() + dlogits.bytes())});
}
BENCHMARK(LoadBalanceBackward)->Apply(Trained);

}  // namespace trainyard::bench::load_balance
