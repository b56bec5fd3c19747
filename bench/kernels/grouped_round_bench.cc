// Rounding of the rows of experts and of their weights: 8192 rows of width 4096, of which one of 16
// groups has a third, and a weight of 1536 x 4096 of each of 16 groups.

#include "bench/kernels/bench.h"
#include "kernels/products/grouped_round.h"

namespace trainyard::bench::grouped_round {

constexpr int64_t kGroups = 16, kR = 8192, kC = 4096, kOutputs = 1536;

struct Rows {
  Tensor x, offsets = {};
};

// Argument 1: 0 for rows with offsets, 1 for weights.
Rows RowsOf(Operands& o, benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  if (state.range(1) == 1) return {.x = o.Make(dtype, {kGroups, kOutputs, kC})};
  return {.x = o.Make(dtype, {kR, kC}), .offsets = o.MakeOf({kGroups + 1}, [](int64_t g) {
            return int32_t(g == 0 ? 0 : kR / 3 + (kR - kR / 3) * (g - 1) / (kGroups - 1));
          })};
}

void GroupedAmax(benchmark::State& state) {
  Operands o;
  const Rows rows = RowsOf(o, state);
  Measure(state,
          GroupedAmaxArgs{.x = rows.x,
                          .offsets = rows.offsets,
                          .amax = o.Make(DType::kF32, {kGroups}),
                          .write = Write::kOverwrite},
          {.bytes = double(rows.x.bytes())});
}

void GroupedRound(benchmark::State& state) {
  Operands o;
  const Rows rows = RowsOf(o, state);
  Measure(state,
          GroupedRoundArgs{.x = rows.x,
                           .offsets = rows.offsets,
                           .amax = o.Make(DType::kF32, {kGroups}),
                           .format = DType::kE4M3,
                           .y = o.Make(rows.x.dtype, rows.x.shape),
                           .scales = o.Make(DType::kF32, {kGroups})},
          {.bytes = 2.0 * double(rows.x.bytes())});
}

void Shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"dtype", "weights"})->UseManualTime()->Unit(benchmark::kMicrosecond);
  for (const int64_t weights : {0, 1}) benchmark->Args({int64_t(DType::kBF16), weights});
}
BENCHMARK(GroupedAmax)->Apply(Shapes);
BENCHMARK(GroupedRound)->Apply(Shapes);

}  // namespace trainyard::bench::grouped_round
