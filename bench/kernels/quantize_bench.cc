// Rounding of an activation of 4096 tokens and 4096 channels, in the scales of the recipes.

#include "bench/kernels/bench.h"
#include "kernels/products/quantize.h"

namespace trainyard::bench::quantize {

constexpr ScaleBlock kBlocks[] = {
    {}, {.rows = 1}, {.columns = 1}, {.rows = 1, .columns = 128}, {.rows = 128, .columns = 128}};

// Arguments: dtype, index of the block, copies (1: by rows, 2: by columns, 3: both).
void Quantize(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  const ScaleBlock block = kBlocks[state.range(1)];
  const int64_t copies = state.range(2);
  Operands o;
  const Tensor x = o.Make(dtype, {4096, 4096});
  const Shape scales = block.ScalesOf(x.shape);
  QuantizeArgs args{.x = x,
                    .block = block,
                    .amax = o.Make(DType::kF32, scales),
                    .scales = o.Make(DType::kF32, scales)};
  if (copies & 1) args.y = o.Room(DType::kE4M3, x.shape);
  if (copies & 2) args.by_columns = o.Room(DType::kE4M3, x.shape);
  const size_t written = args.y.bytes() + args.by_columns.bytes();
  Measure(state, args, {.bytes = double(x.bytes() + written)});
}

void Amax(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  const ScaleBlock block = kBlocks[state.range(1)];
  Operands o;
  const Tensor x = o.Make(dtype, {4096, 4096});
  Measure(state,
          AmaxArgs{.x = x, .block = block, .amax = o.Make(DType::kF32, block.ScalesOf(x.shape))},
          {.bytes = double(x.bytes())});
}

void Shapes(benchmark::internal::Benchmark* benchmark, bool copies) {
  benchmark->UseManualTime()->Unit(benchmark::kMicrosecond);
  for (int64_t block = 0; block < int64_t(std::size(kBlocks)); ++block) {
    if (!copies) {
      benchmark->Args({int64_t(DType::kBF16), block});
      continue;
    }
    for (const int64_t written : {1, 2, 3}) {
      benchmark->Args({int64_t(DType::kBF16), block, written});
    }
  }
}
BENCHMARK(Quantize)->Apply([](auto* benchmark) { Shapes(benchmark, true); });
BENCHMARK(Amax)->Apply([](auto* benchmark) { Shapes(benchmark, false); });

}  // namespace trainyard::bench::quantize
