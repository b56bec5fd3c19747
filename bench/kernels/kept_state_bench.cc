// The recurrent layers of Nemotron 3 Nano, of a token of one text and of 32 texts: 64 heads of 64
// in 8 groups, a state of 128, 4 taps.

#include "bench/kernels/bench.h"
#include "kernels/state_space/kept_state.h"

namespace trainyard::bench::kept_state {

constexpr StateDims kDims = {.heads = 64, .groups = 8, .head_dim = 64, .state = 128, .sequence = 1};
constexpr int64_t kTaps = 4, kTextRows = 1024;

// The second token of each text.
Tensor Rows(Operands& o, int64_t texts) {
  return o.MakeOf({texts}, [](int64_t text) { return int32_t(text * kTextRows + 1); });
}

void KeptScan(benchmark::State& state) {
  const int64_t texts = state.range(0);
  Operands o;
  const DType f32 = DType::kF32;
  const Tensor kept = o.Make(f32, {texts, kDims.state_columns()});
  Measure(state,
          KeptScanArgs{.xbc = o.Make(f32, {texts, kDims.columns()}),
                       .dt = o.Make(f32, {texts, kDims.heads}),
                       .dt_bias = o.Make(f32, {kDims.heads}),
                       .a_log = o.Make(f32, {kDims.heads}),
                       .d = o.Make(f32, {kDims.heads}),
                       .dims = kDims,
                       .rows = Rows(o, texts),
                       .text_rows = kTextRows,
                       .kept = kept,
                       .y = o.Make(f32, {texts, kDims.inner()})},
          {.bytes = 2 * double(kept.bytes())});
}
BENCHMARK(KeptScan)->Arg(1)->Arg(32);

void KeptConv(benchmark::State& state) {
  const int64_t texts = state.range(0), channels = kDims.columns();
  Operands o;
  const DType f32 = DType::kF32;
  const Tensor kept = o.Make(f32, {texts, (kTaps - 1) * channels});
  Measure(state,
          KeptConvArgs{.x = o.Make(f32, {texts, channels}),
                       .weight = o.Make(f32, {channels, kTaps}),
                       .bias = o.Make(f32, {channels}),
                       .rows = Rows(o, texts),
                       .text_rows = kTextRows,
                       .kept = kept,
                       .y = o.Make(f32, {texts, channels})},
          {.bytes = 2 * double(kept.bytes())});
}
BENCHMARK(KeptConv)->Arg(1)->Arg(32);

}  // namespace trainyard::bench::kept_state
