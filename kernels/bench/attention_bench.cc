// Causal attention as the byte model, the 124M Llama and longer sequences have it. FLOPs count the
// causal half: 2 d per score and product, 2 products forward and 5 backward.

#include <cmath>

#include "kernels/attention.h"
#include "kernels/bench/bench.h"

namespace trainyard::bench {
namespace {

// Arguments: dtype, sequences B, tokens S, query heads, key heads, head dim.
struct Problem {
  explicit Problem(benchmark::State& state)
      : dtype(DTypeArg(state)),
        batch(state.range(1)),
        dims{.sequence = state.range(2),
             .heads = state.range(3),
             .kv_heads = state.range(4),
             .head_dim = state.range(5),
             .scale = 1 / std::sqrt(double(state.range(5)))},
        qkv(o.Make(dtype, {batch * dims.sequence, (dims.heads + 2 * dims.kv_heads) * d()})),
        out(o.Make(dtype, {batch * dims.sequence, dims.heads * d()})),
        lse(o.Make(AccumulateOfDType(dtype), {batch, dims.heads, dims.sequence})) {}
  int64_t d() const { return dims.head_dim; }
  Work Products(int count) const {
    const double scores = double(batch * dims.heads) * double(dims.sequence * dims.sequence) / 2;
    return {.flops = count * 2 * scores * double(d())};
  }

  DType dtype;
  int64_t batch;
  AttentionDims dims;
  Operands o;
  Tensor qkv, out, lse;
};

void AttentionForward(benchmark::State& state) {
  Problem p(state);
  Measure(state, AttentionForwardArgs{.qkv = p.qkv, .dims = p.dims, .out = p.out, .lse = p.lse},
          p.Products(2));
}

void AttentionBackward(benchmark::State& state) {
  Problem p(state);
  const Tensor dout = p.o.Make(p.dtype, p.out.shape), dqkv = p.o.Make(p.dtype, p.qkv.shape);
  Measure(state,
          AttentionBackwardArgs{
              .qkv = p.qkv, .out = p.out, .lse = p.lse, .dout = dout, .dims = p.dims, .dqkv = dqkv},
          p.Products(5));
}

void Shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"dtype", "B", "S", "heads", "kv_heads", "d"});
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    benchmark->Args({int64_t(dtype), 16, 256, 8, 4, 32});
    benchmark->Args({int64_t(dtype), 4, 64, 12, 12, 64});
    benchmark->Args({int64_t(dtype), 1, 1024, 12, 12, 64});
    benchmark->Args({int64_t(dtype), 1, 2048, 16, 4, 128});
  }
  benchmark->UseManualTime()->Unit(benchmark::kMicrosecond);
}
BENCHMARK(AttentionForward)->Apply(Shapes);
BENCHMARK(AttentionBackward)->Apply(Shapes);

}  // namespace
}  // namespace trainyard::bench
