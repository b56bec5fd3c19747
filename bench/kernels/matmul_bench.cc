// The products of training (forward, input gradient, weight gradient): a square product, and those
// of layers of the byte model and of the 124M Llama.

#include "bench/kernels/bench.h"
#include "kernels/products/matmul.h"
#include "kernels/products/matmul_gelu.h"

namespace trainyard::bench::matmul {

enum Product : int64_t { kForward, kInputGradient, kWeightGradient };

// Arguments: dtype, product, tokens T, inputs K, outputs N.
void MatMul(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  const int64_t t = state.range(2), k = state.range(3), n = state.range(4);
  Operands o;
  const Tensor x = o.Make(dtype, {t, k}), w = o.Make(dtype, {n, k}), dy = o.Make(dtype, {t, n});
  MatMulArgs args = {.a = x, .b = w, .c = dy, .trans_b = true};
  if (state.range(1) == kInputGradient) args = {.a = dy, .b = w, .c = x};
  if (state.range(1) == kWeightGradient) {
    args = {.a = dy, .b = x, .c = o.Make(AccumulateOfDType(dtype), {n, k})};
    args.trans_a = true;
    args.write = Write::kAdd;
  }
  Measure(state, args, {.flops = 2.0 * double(t) * double(k) * double(n)});
}

void Shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"dtype", "product", "T", "K", "N"});
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    for (const int64_t product : {kForward, kInputGradient, kWeightGradient}) {
      benchmark->Args({int64_t(dtype), product, 2048, 2048, 2048});
      benchmark->Args({int64_t(dtype), product, 4096, 768, 256});
      benchmark->Args({int64_t(dtype), product, 4096, 256, 768});
      benchmark->Args({int64_t(dtype), product, 1024, 768, 1280});
      benchmark->Args({int64_t(dtype), product, 1024, 768, 4096});
      benchmark->Args({int64_t(dtype), product, 1024, 2048, 768});
      benchmark->Args({int64_t(dtype), product, 4096, 768, 3072});
    }
  }
  benchmark->UseManualTime()->Unit(benchmark::kMicrosecond);
}
BENCHMARK(MatMul)->Apply(Shapes);

// The MLP of GPT-2 124M with 4096 tokens. MatMul at 768 and 3072 and Gelu measure its parts.
constexpr int64_t kTokens = 4096, kHidden = 768, kFfn = 3072;
constexpr double kMlpFlops = 2.0 * double(kTokens * kHidden * kFfn);

void MatMulGeluForward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor y = o.Make(dtype, {kTokens, kFfn});
  Measure(state,
          MatMulGeluForwardArgs{.x = o.Make(dtype, {kTokens, kHidden}),
                                .w = o.Make(dtype, {kFfn, kHidden}),
                                .bias = o.Make(dtype, {kFfn}),
                                .product = o.Make(dtype, y.shape),
                                .y = y},
          {.flops = kMlpFlops});
}
BENCHMARK(MatMulGeluForward)->Apply(Trained);

void MatMulGeluBackward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {kTokens, kFfn});
  Measure(state,
          MatMulGeluBackwardArgs{.dy = o.Make(dtype, {kTokens, kHidden}),
                                 .w = o.Make(dtype, {kHidden, kFfn}),
                                 .x = x,
                                 .dx = o.Make(dtype, x.shape)},
          {.flops = kMlpFlops});
}
BENCHMARK(MatMulGeluBackward)->Apply(Trained);

}  // namespace trainyard::bench::matmul
