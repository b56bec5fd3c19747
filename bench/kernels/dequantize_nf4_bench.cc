// A weight of 4096 outputs and 14336 inputs, from NF4 to the dtype of its product. And products
// with weights in NF4, of the 124M Llama's layers. MatMul has their speed with weights in bf16.

#include "bench/kernels/bench.h"
#include "kernels/products/dequantize_nf4.h"
#include "kernels/products/matmul.h"

namespace trainyard::bench::dequantize_nf4 {

// Argument: dtype.
void DequantizeNf4(benchmark::State& state) {
  constexpr int64_t kRows = 4096, kColumns = 14336, kBlocks = kRows * kColumns / kNf4Block;
  const DType dtype = DTypeArg(state);
  Operands o;
  const auto byte = [](int64_t i) { return uint8_t(i * 37 % 251); };
  const auto group = [](int64_t) { return 0.02f; };
  const DequantizeNf4Args args{.codes = o.MakeOf({kRows, kColumns / kNf4PerByte}, byte),
                               .scales = o.MakeOf({kRows, kColumns / kNf4Block}, byte),
                               .groups = o.MakeOf({kBlocks / kNf4Group + 1}, group),
                               .first_block = 0,
                               .row_blocks = kColumns / kNf4Block,
                               .y = o.Room(dtype, {kRows, kColumns})};
  const size_t read = args.codes.bytes() + args.scales.bytes() + args.groups.bytes();
  Measure(state, args, {.bytes = double(read + args.y.bytes())});
}
BENCHMARK(DequantizeNf4)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond)
    ->Arg(int64_t(DType::kF32))
    ->Arg(int64_t(DType::kBF16));

// Arguments: dtype, whether it is the input gradient, tokens T, inputs K, outputs N.
void MatMulNf4(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  const int64_t t = state.range(2), k = state.range(3), n = state.range(4);
  Operands o;
  const auto byte = [](int64_t i) { return uint8_t(i * 37 % 251); };
  const auto group = [](int64_t) { return 0.02f; };
  const int64_t groups = (n * k / kNf4Block + kNf4Group - 1) / kNf4Group + 1;
  const Nf4Run whole = {.row = 0,
                        .rows = n,
                        .first_block = 0,
                        .row_blocks = k / kNf4Block,
                        .first_group = 0,
                        .groups = groups};
  const Tensor x = o.Make(dtype, {t, k}), y = o.Make(dtype, {t, n});
  const bool forward = state.range(1) == 0;
  const MatMulArgs args = {.a = forward ? x : y,
                           .b = o.MakeOf({n, k / kNf4PerByte}, byte),
                           .c = forward ? y : x,
                           .trans_b = forward,
                           .nf4_scales = o.MakeOf({n, k / kNf4Block}, byte),
                           .nf4_groups = o.MakeOf({groups}, group),
                           .nf4_runs = {&whole, 1}};
  Measure(state, args, {.flops = 2.0 * double(t) * double(k) * double(n)});
}
BENCHMARK(MatMulNf4)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond)
    ->ArgNames({"dtype", "dx", "T", "K", "N"})
    ->Args({int64_t(DType::kBF16), 0, 1024, 768, 4096})
    ->Args({int64_t(DType::kBF16), 1, 1024, 768, 4096})
    ->Args({int64_t(DType::kBF16), 0, 1024, 2048, 768})
    ->Args({int64_t(DType::kBF16), 1, 1024, 2048, 768})
    ->Args({int64_t(DType::kBF16), 0, 4096, 4096, 4096});

}  // namespace trainyard::bench::dequantize_nf4
