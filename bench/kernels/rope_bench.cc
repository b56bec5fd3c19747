#include "bench/kernels/bench.h"
#include "kernels/attention/rope.h"

namespace trainyard::bench::rope {

void Rope(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {4096, 3 * 12 * 64});
  Measure(state,
          RopeArgs{.x = x,
                   .cos = o.Make(DType::kF32, {1024, 32}),
                   .sin = o.Make(DType::kF32, {1024, 32}),
                   .heads = 12,
                   .kv_heads = 12,
                   .head_dim = 64,
                   .sequence = 1024,
                   .y = x},
          {.bytes = 2.0 * double(x.bytes()) * 2 / 3});  // In place, values are not touched.
}
BENCHMARK(Rope)->Apply(Trained);

// Half of each head.
void PartialRope(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {4096, 3 * 12 * 64});
  Measure(state,
          RopeArgs{.x = x,
                   .cos = o.Make(DType::kF32, {1024, 16}),
                   .sin = o.Make(DType::kF32, {1024, 16}),
                   .heads = 12,
                   .kv_heads = 12,
                   .head_dim = 64,
                   .sequence = 1024,
                   .y = x},
          {.bytes = 2.0 * double(x.bytes()) / 3});
}
BENCHMARK(PartialRope)->Apply(Trained);

void RopeTable(benchmark::State& state) {
  Operands o;
  const Tensor cos = o.Make(DType::kF32, {8192, 64}), sin = o.Make(DType::kF32, {8192, 64});
  Measure(state, RopeTableArgs{.cos = cos, .sin = sin, .base = 500000, .part = {.rows = 8192}},
          {.bytes = double(cos.bytes() + sin.bytes())});
}
BENCHMARK(RopeTable)->UseManualTime()->Unit(benchmark::kMicrosecond);

}  // namespace trainyard::bench::rope
