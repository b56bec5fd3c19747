// The first product of experts of width 256 on rows of width 768. Of 8192 rows, one of 16 groups
// has a third, and the others share the rest. Also measures the same rows in one group, and with
// weights in NF4.

#include "bench/kernels/bench.h"
#include "kernels/products/grouped_matmul.h"

namespace trainyard::bench::grouped_matmul {

constexpr int64_t kR = 8192, kK = 768, kN = 512;

Tensor Offsets(Operands& o, int64_t groups) {
  return o.MakeOf({groups + 1}, [groups](int64_t g) {
    if (g == 0 || g == groups) return int32_t(g == 0 ? 0 : kR);
    return int32_t(kR / 3 + (kR - kR / 3) * (g - 1) / std::max<int64_t>(1, groups - 1));
  });
}

constexpr Work kWork = {.flops = 2.0 * kR * kK * kN};

void GroupedMatMulForward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  const int64_t groups = state.range(1);
  Operands o;
  Measure(state,
          GroupedMatMulForwardArgs{.x = o.Make(dtype, {kR, kK}),
                                   .weight = o.Make(dtype, {groups, kN, kK}),
                                   .offsets = Offsets(o, groups),
                                   .y = o.Make(dtype, {kR, kN})},
          kWork);
}

void GroupedMatMulForwardNf4(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  const int64_t groups = state.range(1), blocks = kN / 2 * kK / kNf4Block;  // Of two tensors each.
  Operands o;
  const auto byte = [](int64_t i) { return uint8_t(i * 37 % 251); };
  const auto group = [](int64_t) { return 0.02f; };
  const int64_t of_tensor = (blocks + kNf4Group - 1) / kNf4Group + 1;
  Measure(state,
          GroupedMatMulForwardArgs{.x = o.Make(dtype, {kR, kK}),
                                   .weight = o.MakeOf({groups, kN, kK / kNf4PerByte}, byte),
                                   .offsets = Offsets(o, groups),
                                   .y = o.Make(dtype, {kR, kN}),
                                   .nf4_scales = o.MakeOf({groups, kN, kK / kNf4Block}, byte),
                                   .nf4_groups = o.MakeOf({groups, 2 * of_tensor}, group),
                                   .nf4_tensors = 2},
          kWork);
}

void GroupedMatMulInputGradient(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  const int64_t groups = state.range(1);
  Operands o;
  Measure(state,
          GroupedMatMulInputGradientArgs{.dy = o.Make(dtype, {kR, kN}),
                                         .weight = o.Make(dtype, {groups, kN, kK}),
                                         .offsets = Offsets(o, groups),
                                         .dx = o.Make(dtype, {kR, kK})},
          kWork);
}

void GroupedMatMulWeightGradient(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  const int64_t groups = state.range(1);
  Operands o;
  Measure(state,
          GroupedMatMulWeightGradientArgs{.dy = o.Make(dtype, {kR, kN}),
                                          .x = o.Make(dtype, {kR, kK}),
                                          .offsets = Offsets(o, groups),
                                          .dweight = o.Make(DType::kF32, {groups, kN, kK}),
                                          .write = Write::kAdd},
          kWork);
}

void Groups(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"dtype", "groups"});
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t groups : {1, 16}) benchmark->Args({int64_t(dtype), groups});
  }
  benchmark->UseManualTime()->Unit(benchmark::kMicrosecond);
}
BENCHMARK(GroupedMatMulForward)->Apply(Groups);
BENCHMARK(GroupedMatMulForwardNf4)->Apply(Groups);
BENCHMARK(GroupedMatMulInputGradient)->Apply(Groups);
BENCHMARK(GroupedMatMulWeightGradient)->Apply(Groups);

}  // namespace trainyard::bench::grouped_matmul
