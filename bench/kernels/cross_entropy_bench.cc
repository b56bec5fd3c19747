// The argument is the dtype of the logits' gradient.

#include "bench/kernels/bench.h"
#include "kernels/loss/cross_entropy.h"

namespace trainyard::bench::cross_entropy {

constexpr int64_t kT = 512, kV = 32000;

void CrossEntropyForward(benchmark::State& state) {
  Operands o;
  StepState* const step = o.State({.loss_scale = 1});
  const Tensor logits = o.Make(DType::kF32, {kT, kV});
  Measure(state,
          CrossEntropyForwardArgs{.logits = logits,
                                  .targets = o.Make(DType::kI32, {kT}),
                                  .lse = o.Make(DType::kF32, {kT}),
                                  .state = step},
          {.bytes = double(logits.bytes())});
}
BENCHMARK(CrossEntropyForward)->UseManualTime()->Unit(benchmark::kMicrosecond);

// The loss and its gradient, which takes the place of the logits.
void CrossEntropyForwardWithGradient(benchmark::State& state) {
  Operands o;
  StepState* const step = o.State({.loss_scale = 1});
  const Tensor logits = o.Make(DTypeArg(state), {kT, kV});
  Measure(state,
          CrossEntropyForwardArgs{.logits = logits,
                                  .targets = o.Make(DType::kI32, {kT}),
                                  .lse = o.Make(DType::kF32, {kT}),
                                  .state = step,
                                  .dlogits = logits},
          {.bytes = double(2 * logits.bytes())});
}
BENCHMARK(CrossEntropyForwardWithGradient)->Apply(Trained);

void CrossEntropyStatistics(benchmark::State& state) {
  Operands o;
  const Tensor logits = o.Make(DType::kF32, {kT, kV});
  Measure(state,
          CrossEntropyStatisticsArgs{.logits = logits,
                                     .targets = o.Make(DType::kI32, {kT}),
                                     .slice = {},
                                     .statistics = o.Make(DType::kF32, {kT, 3})},
          {.bytes = double(logits.bytes())});
}
BENCHMARK(CrossEntropyStatistics)->UseManualTime()->Unit(benchmark::kMicrosecond);

// Combines the statistics of 4 ranks.
void CrossEntropyCombine(benchmark::State& state) {
  Operands o;
  StepState* const step = o.State({.loss_scale = 1});
  const Tensor statistics = o.Make(DType::kF32, {4, kT, 3});
  Measure(state,
          CrossEntropyCombineArgs{.statistics = statistics,
                                  .targets = o.Make(DType::kI32, {kT}),
                                  .loss_begin = 0,
                                  .loss_rows = kT,
                                  .lse = o.Make(DType::kF32, {kT}),
                                  .state = step},
          {.bytes = double(statistics.bytes())});
}
BENCHMARK(CrossEntropyCombine)->UseManualTime()->Unit(benchmark::kMicrosecond);

void CrossEntropyBackward(benchmark::State& state) {
  Operands o;
  StepState* const step = o.State({.loss_scale = 1});
  const Tensor logits = o.Make(DType::kF32, {kT, kV}), dlogits = o.Make(DTypeArg(state), {kT, kV});
  Measure(state,
          CrossEntropyBackwardArgs{.logits = logits,
                                   .targets = o.Make(DType::kI32, {kT}),
                                   .lse = o.Make(DType::kF32, {kT}),
                                   .state = step,
                                   .dlogits = dlogits},
          {.bytes = double(logits.bytes() + dlogits.bytes())});
}
BENCHMARK(CrossEntropyBackward)->Apply(Trained);

}  // namespace trainyard::bench::cross_entropy
