// Products of 8-bit numbers, as a layer of Llama 2 7B has them, in the scales of the recipes. Their
// share of the bound is of the machine's rate in bf16.

#include "bench/kernels/bench.h"
#include "kernels/products/quantize.h"
#include "kernels/products/scaled_matmul.h"

namespace trainyard::bench::scaled_matmul {

struct Blocks {
  ScaleBlock a, b;
};
constexpr Blocks kBlocks[] = {{{}, {}},
                              {{.rows = 1}, {.rows = 1}},
                              {{.rows = 1, .columns = 128}, {.rows = 128, .columns = 128}},
                              {{.rows = 1, .columns = 128}, {.rows = 1, .columns = 128}}};

// A matrix [rows, columns] of rounded normal numbers, and its scales.
struct Rounded {
  Rounded(Operands& o, const Shape& shape, const ScaleBlock& block)
      : values(o.Room(DType::kE4M3, shape)), scales(o.Make(DType::kF32, block.ScalesOf(shape))) {
    const Tensor x = o.Make(DType::kBF16, shape);
    const Tensor amax = o.Make(DType::kF32, scales.shape);
    Exec exec = TheBackend().NewExec(omp_get_max_threads());
    TheBackend().kernel<AmaxArgs>()(exec, {.x = x, .block = block, .amax = amax});
    TheBackend().kernel<QuantizeArgs>()(
        exec, {.x = x, .block = block, .amax = amax, .y = values, .scales = scales});
    TheBackend().Synchronize(exec);
  }
  Tensor values, scales;
};

// Arguments: dtype of the result, index of the blocks, M, N, K.
void ScaledMatMul(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  const Blocks blocks = kBlocks[state.range(1)];
  const int64_t m = state.range(2), n = state.range(3), k = state.range(4);
  Operands o;
  const Rounded a(o, {m, k}, blocks.a), b(o, {n, k}, blocks.b);
  Measure(state,
          ScaledMatMulArgs{.a = a.values,
                           .a_scales = a.scales,
                           .a_block = blocks.a,
                           .b = b.values,
                           .b_scales = b.scales,
                           .b_block = blocks.b,
                           .c = o.Make(dtype, {m, n}),
                           .trans_b = true,
                           .write = dtype == DType::kF32 ? Write::kAdd : Write::kOverwrite},
          {.flops = 2.0 * double(m) * double(n) * double(k)});
}

void Shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"dtype", "blocks", "M", "N", "K"});
  for (int64_t blocks = 0; blocks < int64_t(std::size(kBlocks)); ++blocks) {
    benchmark->Args({int64_t(DType::kBF16), blocks, 4096, 12288, 4096});  // Forward.
    benchmark->Args({int64_t(DType::kF32), blocks, 12288, 4096, 4096});   // Weight gradient.
  }
  benchmark->UseManualTime()->Unit(benchmark::kMicrosecond);
}
BENCHMARK(ScaledMatMul)->Apply(Shapes);

}  // namespace trainyard::bench::scaled_matmul
