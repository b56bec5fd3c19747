// The state space of Nemotron 3 Nano's Mamba-2 layers: 64 heads of 64 in 8 groups, a state of 128.
// FLOPs count what the recurrence needs: two products with the state for each token and head
// forward, and four backward. The kernels compute more, to work in products of matrices.

#include "bench/kernels/bench.h"
#include "kernels/state_space/state_ends.h"
#include "kernels/state_space/state_init.h"
#include "kernels/state_space/state_scan.h"

namespace trainyard::bench::state_scan {

constexpr int64_t kT = 4096;
constexpr StateDims kDims = {
    .heads = 64, .groups = 8, .head_dim = 64, .state = 128, .sequence = kT};
constexpr double kProduct = 2.0 * double(kT) * double(kDims.inner()) * double(kDims.state);

struct Shapes {
  Shape xbc{kT, kDims.columns()}, dt{kT, kDims.heads}, y{kT, kDims.inner()}, head{kDims.heads};
};

void StateScanForward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  const Shapes s;
  Operands o;
  const Tensor xbc = o.Make(dtype, s.xbc), dt = o.Make(dtype, s.dt), y = o.Make(dtype, s.y);
  Measure(state,
          StateScanForwardArgs{.xbc = xbc,
                               .dt = dt,
                               .dt_bias = o.Make(DType::kF32, s.head),
                               .a_log = o.Make(DType::kF32, s.head),
                               .d = o.Make(DType::kF32, s.head),
                               .dims = kDims,
                               .y = y},
          {.flops = 2 * kProduct, .bytes = double(xbc.bytes() + dt.bytes() + y.bytes())});
}
BENCHMARK(StateScanForward)->Apply(Trained);

void StateScanBackward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  const Shapes s;
  Operands o;
  const Tensor xbc = o.Make(dtype, s.xbc), dt = o.Make(dtype, s.dt), dy = o.Make(dtype, s.y);
  Measure(state,
          StateScanBackwardArgs{.dy = dy,
                                .xbc = xbc,
                                .dt = dt,
                                .dt_bias = o.Make(DType::kF32, s.head),
                                .a_log = o.Make(DType::kF32, s.head),
                                .d = o.Make(DType::kF32, s.head),
                                .dims = kDims,
                                .dxbc = o.Make(dtype, s.xbc),
                                .ddt = o.Make(dtype, s.dt),
                                .ddt_bias = o.Make(DType::kF32, s.head),
                                .da_log = o.Make(DType::kF32, s.head),
                                .dd = o.Make(DType::kF32, s.head),
                                .write_ddt_bias = Write::kOverwrite,
                                .write_da_log = Write::kOverwrite,
                                .write_dd = Write::kOverwrite},
          {.flops = 4 * kProduct, .bytes = double(2 * xbc.bytes() + 2 * dt.bytes() + dy.bytes())});
}
BENCHMARK(StateScanBackward)->Apply(Trained);

void StateEndsForward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  const Shapes s;
  Operands o;
  const Tensor xbc = o.Make(dtype, s.xbc), dt = o.Make(dtype, s.dt);
  Measure(
      state,
      StateEndsForwardArgs{.xbc = xbc,
                           .dt = dt,
                           .dt_bias = o.Make(DType::kF32, s.head),
                           .a_log = o.Make(DType::kF32, s.head),
                           .dims = kDims,
                           .ends = o.Make(DType::kF32, {1, kDims.state_columns() + kDims.heads})},
      {.flops = kProduct, .bytes = double(xbc.bytes() + dt.bytes())});
}
BENCHMARK(StateEndsForward)->Apply(Trained);

void StateEndsBackward(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  const Shapes s;
  Operands o;
  const Tensor xbc = o.Make(dtype, s.xbc), dt = o.Make(dtype, s.dt);
  Measure(
      state,
      StateEndsBackwardArgs{.dends = o.Make(DType::kF32, {1, kDims.state_columns() + kDims.heads}),
                            .xbc = xbc,
                            .dt = dt,
                            .dt_bias = o.Make(DType::kF32, s.head),
                            .a_log = o.Make(DType::kF32, s.head),
                            .dims = kDims,
                            .dxbc = o.Make(dtype, s.xbc),
                            .ddt = o.Make(dtype, s.dt),
                            .ddt_bias = o.Make(DType::kF32, s.head),
                            .da_log = o.Make(DType::kF32, s.head),
                            .write_ddt_bias = Write::kOverwrite,
                            .write_da_log = Write::kOverwrite},
      {.flops = 2 * kProduct, .bytes = double(2 * xbc.bytes() + 2 * dt.bytes())});
}
BENCHMARK(StateEndsBackward)->Apply(Trained);

// The chain of four context ranks' parts of a sequence.
constexpr int64_t kRanks = 4;

void StateStartsForward(benchmark::State& state) {
  Operands o;
  const Tensor ends = o.Make(DType::kF32, {2 * kRanks, kDims.state_columns() + kDims.heads});
  Measure(state,
          StateStartsForwardArgs{.ends = ends,
                                 .heads = kDims.heads,
                                 .ranks = kRanks,
                                 .rank = 1,
                                 .starts = o.Make(DType::kF32, {2, kDims.state_columns()})},
          {.bytes = double(ends.bytes())});
}
BENCHMARK(StateStartsForward)->UseManualTime()->Unit(benchmark::kMicrosecond);

void StateStartsBackward(benchmark::State& state) {
  Operands o;
  const Tensor ends = o.Make(DType::kF32, {2 * kRanks, kDims.state_columns() + kDims.heads});
  Measure(state,
          StateStartsBackwardArgs{.dstarts = o.Make(DType::kF32, {2, kDims.state_columns()}),
                                  .ends = ends,
                                  .heads = kDims.heads,
                                  .ranks = kRanks,
                                  .rank = 1,
                                  .dends = o.Make(DType::kF32, ends.shape)},
          {.bytes = 2 * double(ends.bytes())});
}
BENCHMARK(StateStartsBackward)->UseManualTime()->Unit(benchmark::kMicrosecond);

void StateInit(benchmark::State& state) {
  Operands o;
  const Tensor y = o.Make(DType::kF32, {kDims.heads});
  Measure(state,
          StateInitArgs{.y = y,
                        .kind = StateInitKind::kSteps,
                        .steps = {.least = 0.001, .most = 0.1},
                        .state = o.State({})},
          {.bytes = double(y.bytes())});
}
BENCHMARK(StateInit)->UseManualTime()->Unit(benchmark::kMicrosecond);

}  // namespace trainyard::bench::state_scan
