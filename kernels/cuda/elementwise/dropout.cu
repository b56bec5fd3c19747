// Bound by memory: the choice of an element takes a few integer operations.
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/elementwise/dropout.h"

namespace trainyard::cuda {
namespace {

template <typename T>
struct DropoutBody {
  const T* x;
  const int32_t* samples;
  SequencePart part;
  int64_t first_row, columns, first_column, all_columns;
  DropoutPlace place;
  const StepState* state;
  T* y;

  // The elements are of one row.
  template <int kCount>
  __device__ void operator()(int64_t i) const {
    using A = Accumulate<T>;
    const int64_t row = first_row + i / columns;
    const int64_t token = samples[row] * part.rows * part.ranks + part.position(row % part.rows);
    const uint64_t first = uint64_t(token * all_columns + first_column + i % columns);
    const DropoutKey dropout(place, *state);
    const auto xs = LoadPack<T, kCount>(x + i);
    Pack<T, kCount> ys;
    for (int n = 0; n < kCount; ++n) {
      ys.v[n] = dropout.keeps(first + uint64_t(n)) ? T(A(xs.v[n]) * A(dropout.scale)) : T(A(0));
    }
    StorePack(y + i, ys);
  }
};

}  // namespace

void Dropout(Exec& exec, const DropoutArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const int64_t columns = args.x.shape.back();
    const DropoutBody<T> body = {.x = args.x.as<T>(),
                                 .samples = args.samples.as<int32_t>(),
                                 .part = args.part,
                                 .first_row = args.first_row,
                                 .columns = columns,
                                 .first_column = args.first_column,
                                 .all_columns = args.columns > 0 ? args.columns : columns,
                                 .place = args.place,
                                 .state = args.state,
                                 .y = args.y.as<T>()};
    ForEachPack<T>(exec, args.x.elements(), CanPack<T>(columns, body.x, body.y), body);
  });
}

}  // namespace trainyard::cuda
