// 16 heads of DeepSeek-V3: 128 columns without positions, 64 with, and values of 128.

#include "bench/kernels/bench.h"
#include "kernels/attention/latent_heads.h"

namespace trainyard::bench::latent_heads {

constexpr int64_t kT = 4096, kA = 16, kN = 128, kR = 64, kE = 128;

struct Shapes {
  Shape q{kT, kA*(kN + kR)}, kv{kT, kA*(kN + kE)}, k_rope{kT, kR};
  Shape qkv{kT, kA*(2 * (kN + kR) + kE)}, angles{kT, kR / 2};
};

void LatentHeadsForward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  const Shapes s;
  Operands o;
  const Tensor q = o.Make(dtype, s.q), kv = o.Make(dtype, s.kv), qkv = o.Make(dtype, s.qkv);
  Measure(state,
          LatentHeadsForwardArgs{.q = q,
                                 .kv = kv,
                                 .k_rope = o.Make(dtype, s.k_rope),
                                 .cos = o.Make(DType::kF32, s.angles),
                                 .sin = o.Make(DType::kF32, s.angles),
                                 .heads = kA,
                                 .sequence = kT,
                                 .qkv = qkv},
          {.bytes = double(q.bytes() + kv.bytes() + qkv.bytes())});
}
BENCHMARK(LatentHeadsForward)->Apply(Trained);

void LatentHeadsBackward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  const Shapes s;
  Operands o;
  const Tensor dq = o.Make(dtype, s.q), dkv = o.Make(dtype, s.kv), dqkv = o.Make(dtype, s.qkv);
  Measure(state,
          LatentHeadsBackwardArgs{.dqkv = dqkv,
                                  .cos = o.Make(DType::kF32, s.angles),
                                  .sin = o.Make(DType::kF32, s.angles),
                                  .heads = kA,
                                  .sequence = kT,
                                  .dq = dq,
                                  .dkv = dkv,
                                  .dk_rope = o.Make(dtype, s.k_rope)},
          {.bytes = double(dq.bytes() + dkv.bytes() + dqkv.bytes())});
}
BENCHMARK(LatentHeadsBackward)->Apply(Trained);

}  // namespace trainyard::bench::latent_heads
