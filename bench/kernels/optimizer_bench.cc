// The kernels that run over all parameters at the end of a step or before a checkpoint, with 16
// million parameters.

#include "bench/kernels/bench.h"
#include "kernels/optimizer/adamw.h"
#include "kernels/optimizer/compact_adamw.h"
#include "kernels/optimizer/lion.h"
#include "kernels/optimizer/muon.h"
#include "kernels/optimizer/split_master.h"
#include "kernels/sums/sum_squares.h"
#include "kernels/sums/sum_words.h"

namespace trainyard::bench::optimizer {

constexpr int64_t kParameters = 16 << 20;

void SumSquares(benchmark::State& state) {
  Operands o;
  StepState* const step = o.State({});
  const Tensor x = o.Make(DTypeArg(state), {kParameters});
  Measure(state, SumSquaresArgs{.x = x, .state = step}, {.bytes = double(x.bytes())});
}
BENCHMARK(SumSquares)->Apply(Trained);

void SumWords(benchmark::State& state) {
  Operands o;
  StepState* const step = o.State({});
  const Tensor x = o.Make(DType::kF32, {kParameters});
  Measure(state, SumWordsArgs{.x = x, .state = step}, {.bytes = double(x.bytes())});
}
BENCHMARK(SumWords);

// The argument is the dtype of the compute copy.
void AdamW(benchmark::State& state) {
  Operands o;
  StepState* const step = o.State({.step = 1, .learning_rate = 1e-6});
  const Tensor master = o.Make(DType::kF32, {kParameters});
  const Tensor compute = o.Make(DTypeArg(state), {kParameters});
  Measure(state,
          AdamWArgs{.master = master,
                    .m = o.Make(DType::kF32, {kParameters}),
                    .v = o.Make(DType::kF32, {kParameters}),
                    .grad = o.Make(DType::kF32, {kParameters}),
                    .options = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1},
                    .state = step,
                    .compute = compute},
          {.bytes = 7.0 * double(master.bytes()) + double(compute.bytes())});
}
BENCHMARK(AdamW)->Apply(Trained);

void CompactAdamW(benchmark::State& state) {
  Operands o;
  StepState* const step = o.State({.step = 1, .learning_rate = 1e-6});
  const Tensor weight = o.Make(DType::kBF16, {kParameters});
  Measure(
      state,
      CompactAdamWArgs{.weight = weight,
                       .m = o.Make(DType::kBF16, {kParameters}),
                       .v = o.Make(DType::kBF16, {kParameters}),
                       .grad = o.Make(DType::kF32, {kParameters}),
                       .options = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1},
                       .stream = 1,
                       .global_columns = kParameters,
                       .first_row = 0,
                       .first_column = 0,
                       .state = step,
                       .remainder = o.MakeOf({kParameters}, [](int64_t) { return int16_t{0}; })},
      {.bytes = 10.0 * double(weight.bytes())});
}
BENCHMARK(CompactAdamW);

void SplitMaster(benchmark::State& state) {
  Operands o;
  const Tensor master = o.Make(DType::kF32, {kParameters});
  const Tensor weight = o.Make(DType::kBF16, {kParameters});
  const Tensor remainder = o.MakeOf({kParameters}, [](int64_t) { return int16_t{0}; });
  Measure(state, SplitMasterArgs{.master = master, .weight = weight, .remainder = remainder},
          {.bytes = 2.0 * double(master.bytes())});
}
BENCHMARK(SplitMaster);

void JoinMaster(benchmark::State& state) {
  Operands o;
  const Tensor master = o.Make(DType::kF32, {kParameters});
  const Tensor weight = o.Make(DType::kBF16, {kParameters});
  const Tensor remainder = o.MakeOf({kParameters}, [](int64_t) { return int16_t{0}; });
  Measure(state, JoinMasterArgs{.weight = weight, .remainder = remainder, .master = master},
          {.bytes = 2.0 * double(master.bytes())});
}
BENCHMARK(JoinMaster);

// The argument is the dtype of the compute copy.
void Lion(benchmark::State& state) {
  Operands o;
  StepState* const step = o.State({.step = 1, .learning_rate = 1e-6});
  const Tensor master = o.Make(DType::kF32, {kParameters});
  const Tensor compute = o.Make(DTypeArg(state), {kParameters});
  Measure(state,
          LionArgs{.master = master,
                   .m = o.Make(DType::kF32, {kParameters}),
                   .grad = o.Make(DType::kF32, {kParameters}),
                   .options = {.beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1},
                   .state = step,
                   .compute = compute},
          {.bytes = 5.0 * double(master.bytes()) + double(compute.bytes())});
}
BENCHMARK(Lion)->Apply(Trained);

// The arguments are the dtype of a matrix of 4096 x 4096, and its products' speed is what counts.
void NewtonSchulz(benchmark::State& state) {
  Operands o;
  constexpr int64_t kSide = 4096;
  const DType dtype = DTypeArg(state), sums = AccumulateOfDType(dtype);
  const double product = 2.0 * kSide * kSide * kSide;
  Measure(state,
          NewtonSchulzArgs{.x = o.Make(dtype, {kSide, kSide}),
                           .y = o.Make(sums, {kSide, kSide}),
                           .gram = o.Make(dtype, {kSide, kSide}),
                           .square = o.Make(sums, {kSide, kSide})},
          {.flops = (3 * kNewtonSchulzSteps + 1) * product});
}
BENCHMARK(NewtonSchulz)->Apply(Trained);

}  // namespace trainyard::bench::optimizer
