// Causal attention with the shapes of the byte model, of the 124M Llama and of longer sequences,
// and a window as in gpt-oss. FLOPs count the pairs that the mask allows: 2 d for each score and
// product, 2 products forward and 5 backward.

#include <cmath>

#include "bench/kernels/bench.h"
#include "kernels/attention/attention.h"

namespace trainyard::bench::attention {

// Views of the heads of a packed projection.
template <typename View, typename AnyTensor>
struct Packed {
  Packed(const AnyTensor& packed, const AttentionDims& dims)
      : q(packed, 0, dims.query_columns()),
        k(packed, dims.query_columns(), dims.key_columns()),
        v(packed, dims.query_columns() + dims.key_columns(), dims.value_columns()) {}
  View q, k, v;
};

// Arguments: dtype, sequences B, tokens S, query heads, key heads, head dim, window (0: none).
struct Problem {
  explicit Problem(benchmark::State& state)
      : dtype(DTypeArg(state)),
        batch(state.range(1)),
        dims{.sequence = state.range(2),
             .heads = state.range(3),
             .kv_heads = state.range(4),
             .head_dim = state.range(5),
             .value_dim = state.range(5),
             .scale = 1 / std::sqrt(double(state.range(5))),
             .mask = {.window = state.range(6)}},
        qkv(o.Make(dtype, {batch * dims.sequence, (dims.heads + 2 * dims.kv_heads) * d()})),
        out(o.Make(dtype, {batch * dims.sequence, dims.heads * d()})),
        lse(o.Make(AccumulateOfDType(dtype), {batch, dims.heads, dims.sequence})) {}
  int64_t d() const { return dims.head_dim; }
  Work Products(int count) const {
    const double scores =
        double(batch * dims.heads) * PairsSeen(dims.mask, 0, dims.sequence, dims.sequence);
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
  const Packed<ConstMatrixView, ConstTensor> qkv(p.qkv, p.dims);
  Measure(state,
          AttentionForwardArgs{
              .q = qkv.q, .k = qkv.k, .v = qkv.v, .dims = p.dims, .out = p.out, .lse = p.lse},
          p.Products(2));
}

void AttentionBackward(benchmark::State& state) {
  Problem p(state);
  const Tensor dout = p.o.Make(p.dtype, p.out.shape), dqkv = p.o.Make(p.dtype, p.qkv.shape);
  const Packed<ConstMatrixView, ConstTensor> from(p.qkv, p.dims);
  const Packed<MatrixView, Tensor> to(dqkv, p.dims);
  Measure(state,
          AttentionBackwardArgs{.q = from.q,
                                .k = from.k,
                                .v = from.v,
                                .out = p.out,
                                .lse = p.lse,
                                .dout = dout,
                                .dims = p.dims,
                                .dq = to.q,
                                .dk = to.k,
                                .dv = to.v},
          p.Products(5));
}

void Shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"dtype", "B", "S", "heads", "kv_heads", "d", "window"});
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    benchmark->Args({int64_t(dtype), 16, 256, 8, 4, 32, 0});
    benchmark->Args({int64_t(dtype), 4, 64, 12, 12, 64, 0});
    benchmark->Args({int64_t(dtype), 1, 1024, 12, 12, 64, 0});
    benchmark->Args({int64_t(dtype), 1, 2048, 16, 4, 128, 0});
    benchmark->Args({int64_t(dtype), 1, 2048, 16, 4, 64, 128});
  }
  benchmark->UseManualTime()->Unit(benchmark::kMicrosecond);
}
BENCHMARK(AttentionForward)->Apply(Shapes);
BENCHMARK(AttentionBackward)->Apply(Shapes);

}  // namespace trainyard::bench::attention
