// A batch of 4096 tokens in a vocabulary of 32000, spread evenly. In a padded batch, every other
// token is the same one.

#include "bench/kernels/bench.h"
#include "kernels/embeddings/embedding.h"

namespace trainyard::bench::embedding {

constexpr int64_t kT = 4096, kV = 32000, kD = 768;

Tensor Tokens(Operands& o, bool padded = false) {
  return o.MakeOf({kT},
                  [=](int64_t t) { return int32_t(padded && t % 2 == 0 ? 0 : t * 7919 % kV); });
}

void EmbeddingForward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor y = o.Make(dtype, {kT, kD});
  Measure(state,
          EmbeddingForwardArgs{.table = o.Make(dtype, {kV, kD}), .tokens = Tokens(o), .y = y},
          {.bytes = 2.0 * double(y.bytes())});
}
BENCHMARK(EmbeddingForward)->Apply(Trained);

void MeasureBackward(benchmark::State& state, bool padded) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor dy = o.Make(dtype, {kT, kD});
  Measure(state,
          EmbeddingBackwardArgs{.dy = dy,
                                .tokens = Tokens(o, padded),
                                .dtable = o.Make(DType::kF32, {kV, kD}),
                                .write = Write::kAdd},
          {.bytes = double(dy.bytes()) + 2.0 * kT * kD * sizeof(float)});
}

void EmbeddingBackward(benchmark::State& state) { MeasureBackward(state, false); }
BENCHMARK(EmbeddingBackward)->Apply(Trained);

void EmbeddingBackwardOfPadding(benchmark::State& state) { MeasureBackward(state, true); }
BENCHMARK(EmbeddingBackwardOfPadding)->Apply(Trained);

}  // namespace trainyard::bench::embedding
