// The work of a rank on keys of an earlier rank: all of its queries see half of these keys. FLOPs
// are as in attention_bench.cc, for all scores.

#include <cmath>

#include "bench/kernels/bench.h"
#include "kernels/attention/attention_part.h"

namespace trainyard::bench::attention_part {

// Arguments: dtype, rows L, query heads, key heads, head dim.
struct Problem {
  explicit Problem(benchmark::State& state)
      : dtype(DTypeArg(state)),
        dims{.sequence = state.range(1),
             .heads = state.range(2),
             .kv_heads = state.range(3),
             .head_dim = state.range(4),
             .value_dim = state.range(4),
             .scale = 1 / std::sqrt(double(state.range(4)))},
        part{0, dims.sequence, 0, dims.sequence / 2, false},
        out_shape{dims.sequence, dims.heads * dims.head_dim},
        kv_shape{dims.sequence, 2 * dims.kv_heads * dims.head_dim},
        q(o.Make(dtype, out_shape)),
        kv(o.Make(dtype, kv_shape)),
        lse(o.Make(AccumulateOfDType(dtype), {1, dims.heads, dims.sequence})) {}
  int64_t columns() const { return dims.key_columns(); }
  Work Products(int count) const {
    const double scores = double(dims.heads * part.q_rows) * double(part.kv_rows);
    return {.flops = count * 2 * scores * double(dims.head_dim)};
  }

  DType dtype;
  AttentionDims dims;
  AttentionPart part;
  Shape out_shape, kv_shape;
  Operands o;
  Tensor q, kv, lse;
};

void AttentionPartForward(benchmark::State& state) {
  Problem p(state);
  Measure(state,
          AttentionPartForwardArgs{.q = ConstTensor(p.q),
                                   .k = {p.kv, 0, p.columns()},
                                   .v = {p.kv, p.columns(), p.columns()},
                                   .dims = p.dims,
                                   .part = p.part,
                                   .out = p.o.Make(p.lse.dtype, p.out_shape),
                                   .lse = p.lse,
                                   .write = Write::kAdd},
          p.Products(2));
}

void AttentionPartBackward(benchmark::State& state) {
  Problem p(state);
  const Tensor dkv = p.o.Make(p.lse.dtype, p.kv_shape);
  Measure(state,
          AttentionPartBackwardArgs{.q = ConstTensor(p.q),
                                    .k = {p.kv, 0, p.columns()},
                                    .v = {p.kv, p.columns(), p.columns()},
                                    .out = p.o.Make(p.dtype, p.out_shape),
                                    .lse = p.lse,
                                    .dout = p.o.Make(p.dtype, p.out_shape),
                                    .dims = p.dims,
                                    .part = p.part,
                                    .dq = p.o.Make(p.lse.dtype, p.out_shape),
                                    .dk = {dkv, 0, p.columns()},
                                    .dv = {dkv, p.columns(), p.columns()},
                                    .write_dq = Write::kAdd,
                                    .write_dkv = Write::kAdd},
          p.Products(5));
}

void Shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"dtype", "L", "heads", "kv_heads", "d"});
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    benchmark->Args({int64_t(dtype), 1024, 12, 12, 64});
    benchmark->Args({int64_t(dtype), 2048, 16, 4, 128});
  }
  benchmark->UseManualTime()->Unit(benchmark::kMicrosecond);
}
BENCHMARK(AttentionPartForward)->Apply(Shapes);
BENCHMARK(AttentionPartBackward)->Apply(Shapes);

}  // namespace trainyard::bench::attention_part
