// A weight of 4096 outputs and 14336 inputs, from NF4 to the dtype of its product.

#include "bench/kernels/bench.h"
#include "kernels/products/dequantize_nf4.h"

namespace trainyard::bench {
namespace {

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

}  // namespace
}  // namespace trainyard::bench
