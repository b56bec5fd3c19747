// Bound by memory: each element is read once.

#include "kernels/cuda/columns.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/kernels.h"
#include "kernels/sums/column_sum.h"

namespace trainyard::cuda {
namespace {

template <typename A>
struct ToRun {
  A* sums;
  int64_t columns;

  __device__ void operator()(int64_t run, int64_t c, A sum) const { sums[run * columns + c] = sum; }
};

}  // namespace

void ColumnSum(Exec& exec, const ColumnSumArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    constexpr int kWidth = 32;
    const int64_t columns = args.x.shape.back(), tiles = CeilDiv(columns, kWidth * kPackOf<T>);
    const RowRuns rows = InRuns(args.x.shape.rows(), columns, CeilDiv(kMaxBlocks, tiles));
    A* sums = ScratchOf<A>(exec, rows.runs() * columns);
    SumRuns(exec, args.x.as<T>(), rows, kWidth, ToRun<A>{sums, columns});
    AddRuns(exec, sums, rows.runs(), ColumnOutputs<A, 1>{{args.y.as<A>()}, columns, args.write});
  });
}

}  // namespace trainyard::cuda
