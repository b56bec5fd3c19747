// The loss of pairs of answers: a micro-batch of one sample with 8192 tokens, in sixteen pairs.

#include "bench/kernels/bench.h"
#include "kernels/loss/preference.h"

namespace trainyard::bench::preference {

constexpr int64_t kT = 8192, kPairs = 16;

Tensor MakeSides(Operands& o) {
  return o.MakeOf({kT}, [](int64_t t) { return int32_t(t * 2 * kPairs / kT); });
}

void PreferenceSums(benchmark::State& state) {
  Operands o;
  Measure(state,
          PreferenceSumsArgs{.log_probs = o.Make(DType::kF32, {kT}),
                             .targets = o.Make(DType::kI32, {kT}),
                             .sides = MakeSides(o),
                             .reference = o.Make(DType::kF64, {kT}),
                             .sums = o.Make(DType::kF64, {1, kT, 3})},
          {.bytes = double(kT) * 44});
}
BENCHMARK(PreferenceSums)->UseManualTime()->Unit(benchmark::kMicrosecond);

void PreferenceLoss(benchmark::State& state) {
  Operands o;
  StepState* const step = o.State({.loss_scale = 1});
  Measure(state,
          PreferenceLossArgs{.sums = o.Make(DType::kF64, {1, kT, 3}),
                             .targets = o.Make(DType::kI32, {kT}),
                             .sides = MakeSides(o),
                             .method = PreferenceMethod::kDpo,
                             .beta = 0.1,
                             .adds = true,
                             .state = step,
                             .dlog_probs = o.Make(DType::kF32, {kT})},
          {.bytes = double(kT) * 36});
}
BENCHMARK(PreferenceLoss)->UseManualTime()->Unit(benchmark::kMicrosecond);

}  // namespace trainyard::bench::preference
