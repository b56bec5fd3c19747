// Add, AddBias, Dropout, Fill, Cast, CopyColumns, Scale and SumSlices should be as fast as memory.
// (Positions and Clip write only a few numbers and have no benchmark.)

#include "bench/kernels/bench.h"
#include "kernels/elementwise/add.h"
#include "kernels/elementwise/add_bias.h"
#include "kernels/elementwise/cast.h"
#include "kernels/elementwise/copy_columns.h"
#include "kernels/elementwise/dropout.h"
#include "kernels/elementwise/fill.h"
#include "kernels/elementwise/scale.h"
#include "kernels/sums/sum_slices.h"

namespace trainyard::bench::elementwise {

constexpr int64_t kElements = 4096 * 768;

void Add(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor a = o.Make(dtype, {kElements}), b = o.Make(dtype, {kElements});
  Measure(state, AddArgs{.a = a, .b = b, .y = o.Make(dtype, a.shape)},
          {.bytes = 3.0 * double(a.bytes())});
}
BENCHMARK(Add)->Apply(Trained);

void AddBias(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {4096, 768}), bias = o.Make(dtype, {768});
  Measure(state, AddBiasArgs{.x = x, .bias = bias, .y = o.Make(dtype, x.shape)},
          {.bytes = 2.0 * double(x.bytes())});
}
BENCHMARK(AddBias)->Apply(Trained);

void Dropout(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {4096, 768});
  const Tensor samples = o.MakeOf({4096}, [](int64_t i) { return int32_t(i / 1024); });
  Measure(state,
          DropoutArgs{.x = x,
                      .samples = samples,
                      .part = {.rows = 1024},
                      .place = {.probability = 0.1, .stream = 1},
                      .state = o.State({.step = 1, .seed = 1}),
                      .y = o.Make(dtype, x.shape)},
          {.bytes = 2.0 * double(x.bytes())});
}
BENCHMARK(Dropout)->Apply(Trained);

void Scale(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {kElements});
  Measure(state, ScaleArgs{.x = x, .y = o.Make(dtype, x.shape), .factor = 2},
          {.bytes = 2.0 * double(x.bytes())});
}
BENCHMARK(Scale)->Apply(Trained);

void Fill(benchmark::State& state) {
  Operands o;
  const Tensor y = o.Make(DTypeArg(state), {kElements});
  Measure(state, FillArgs{.y = y, .value = 0}, {.bytes = double(y.bytes())});
}
BENCHMARK(Fill)->Apply(Trained);

// From f32 to the dtype in the argument.
void Cast(benchmark::State& state) {
  Operands o;
  const Tensor x = o.Make(DType::kF32, {kElements}), y = o.Make(DTypeArg(state), {kElements});
  Measure(state, CastArgs{.x = x, .y = y}, {.bytes = double(x.bytes() + y.bytes())});
}
BENCHMARK(Cast)->Apply(Trained);

// Copies keys and values out of a packed projection of 12 heads each.
void CopyColumns(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {4096, 3 * 768}), y = o.Make(dtype, {4096, 2 * 768});
  Measure(state, CopyColumnsArgs{.x = x, .x_begin = 768, .y = y, .y_begin = 0, .columns = 2 * 768},
          {.bytes = 2.0 * double(y.bytes())});
}
BENCHMARK(CopyColumns)->Apply(Trained);

// Sums the parts of two tensor ranks.
void SumSlices(benchmark::State& state) {
  const DType dtype = DTypeArg(state);
  Operands o;
  const Tensor x = o.Make(dtype, {2, kElements}), y = o.Make(dtype, {kElements});
  Measure(state, SumSlicesArgs{.x = x, .y = y}, {.bytes = double(x.bytes() + y.bytes())});
}
BENCHMARK(SumSlices)->Apply(Trained);

}  // namespace trainyard::bench::elementwise
