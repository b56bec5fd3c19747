// Dispatch and combination of 4096 tokens that choose 8 of 128 experts, on one rank.

#include "bench/kernels/bench.h"
#include "kernels/experts/expert_order.h"
#include "kernels/experts/gather_rows.h"

namespace trainyard::bench::gather_rows {

constexpr int64_t kT = 4096, kK = 8, kE = 128, kD = 768;

ExpertOrderArgs Order(Operands& o) {
  const Tensor experts = o.MakeOf({kT, kK}, [](int64_t i) { return int32_t(i * 7919 % kE); });
  return {.experts = experts,
          .counts = o.Make(DType::kI32, {kE}),
          .order = o.Make(DType::kI32, {kT * kK}),
          .place = o.Make(DType::kI32, {kT, kK})};
}

// The arguments after the sort.
ExpertOrderArgs Sorted(Operands& o) {
  const ExpertOrderArgs args = Order(o);
  Exec exec = TheBackend().NewExec(1);
  TheBackend().kernel<ExpertOrderArgs>()(exec, args);
  TheBackend().Synchronize(exec);
  return args;
}

void ExpertOrder(benchmark::State& state) {
  Operands o;
  const ExpertOrderArgs args = Order(o);
  Measure(state, args, {.bytes = 3.0 * double(args.experts.bytes())});
}
BENCHMARK(ExpertOrder)->UseManualTime()->Unit(benchmark::kMicrosecond);

void GatherRows(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor y = o.Make(dtype, {kT * kK, kD});
  Measure(
      state,
      GatherRowsArgs{.x = o.Make(dtype, {kT, kD}), .rows = Sorted(o).order, .divisor = kK, .y = y},
      {.bytes = 2.0 * double(y.bytes())});
}
BENCHMARK(GatherRows)->Apply(Trained);

void GatherSum(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor z = o.Make(dtype, {kT * kK, kD}), y = o.Make(dtype, {kT, kD});
  Measure(state, GatherSumArgs{.z = z, .place = Sorted(o).place, .y = y},
          {.bytes = double(z.bytes() + y.bytes())});
}
BENCHMARK(GatherSum)->Apply(Trained);

void ScatterRows(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {kT * kK, kD}), y = o.Make(dtype, {kT * kK, kD});
  Measure(state, ScatterRowsArgs{.x = x, .rows = Sorted(o).order, .y = y},
          {.bytes = 2.0 * double(y.bytes())});
}
BENCHMARK(ScatterRows)->Apply(Trained);

}  // namespace trainyard::bench::gather_rows
