// Rows are read once, and written once when they are rounded. A binary search finds the group of a
// row in the offsets, which come from the cache. Rounding is bound by memory, and finding the
// greatest value, too: a block has one atomic maximum for each of its rows.
#include <bit>
#include <cmath>

#include "kernels/cuda/context.h"
#include "kernels/cuda/failure.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/products/round_pair.h"
#include "kernels/cuda/rows.h"
#include "kernels/products/grouped_round.h"

namespace trainyard::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kRowsOfBlock = 64;  // Of which a block finds the columns' greatest values.

// Numbers that are not negative are in the order of their bits.
template <typename A>
__device__ void RaiseTo(A* to, A value) {
  if constexpr (std::is_same_v<A, double>) {
    atomicMax(reinterpret_cast<unsigned long long*>(to), std::bit_cast<unsigned long long>(value));
  } else {
    atomicMax(reinterpret_cast<unsigned*>(to), std::bit_cast<unsigned>(value));
  }
}

// The rows of each group: by offsets, or equally many.
struct RowGroups {
  const int32_t* offsets;  // [count + 1], or null.
  int count;
  int64_t bound;
  Failure fail = {};

  // The threads of the first block check all groups.
  __device__ void CheckAll() const {
    if (blockIdx.x != 0 || offsets == nullptr) return;
    for (int g = int(threadIdx.x); g < count; g += int(blockDim.x)) {
      const int32_t begin = offsets[g], end = offsets[g + 1];
      if (begin >= 0 && begin <= end && end <= bound) continue;
      fail("grouped_round offsets: group % has rows % to % of %", g, begin, end, bound);
    }
  }
  __device__ bool Has(int64_t row) const {
    return offsets == nullptr || (row >= offsets[0] && row < offsets[count]);
  }
  // Returns the group of a row, which must belong to one.
  __device__ int Of(int64_t row) const {
    if (offsets == nullptr) return int(row / (bound / count));
    int low = 0, high = count;  // offsets[low] <= row < offsets[high]
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (offsets[middle] <= row ? low : high) = middle;
    }
    return low;
  }
};

RowGroups GroupsOf(const ConstTensor& x, const ConstTensor& offsets, int64_t groups) {
  const int32_t* const at = offsets.data == nullptr ? nullptr : offsets.as<int32_t>();
  return {at, int(groups), x.shape.rows()};
}

template <int kCount, typename T>
__global__ void __launch_bounds__(kThreads)
    AmaxKernel(RowGroups groups, const T* x, int64_t columns, Accumulate<T>* amax) {
  using A = Accumulate<T>;
  groups.CheckAll();
  for (int64_t r = blockIdx.x; r < groups.bound; r += gridDim.x) {
    if (!groups.Has(r)) continue;
    A most = 0;
    for (int64_t i = int64_t(threadIdx.x) * kCount; i < columns; i += blockDim.x * kCount) {
      const auto xs = LoadPack<T, kCount>(x + r * columns + i);
      // Passes over what is no number.
      for (int k = 0; k < kCount; ++k) most = std::fmax(most, std::abs(A(xs.v[k])));
    }
    most = BlockReduce(most, Max(), A(0));
    if (threadIdx.x == 0) RaiseTo(amax + groups.Of(r), most);
  }
}

// The same of each row.
template <int kCount, typename T>
__global__ void __launch_bounds__(kThreads)
    RowAmaxKernel(RowGroups groups, const T* x, int64_t columns, Accumulate<T>* amax, bool add) {
  using A = Accumulate<T>;
  groups.CheckAll();
  for (int64_t r = blockIdx.x; r < groups.bound; r += gridDim.x) {
    if (!groups.Has(r)) {
      if (!add && threadIdx.x == 0) amax[r] = 0;  // Its scale is computed with the others.
      continue;
    }
    A most = 0;
    for (int64_t i = int64_t(threadIdx.x) * kCount; i < columns; i += blockDim.x * kCount) {
      const auto xs = LoadPack<T, kCount>(x + r * columns + i);
      for (int k = 0; k < kCount; ++k) most = std::fmax(most, std::abs(A(xs.v[k])));
    }
    most = BlockReduce(most, Max(), A(0));
    if (threadIdx.x == 0) amax[r] = add ? Max()(amax[r], most) : most;
  }
}

// The same of each column of a group. A block has some rows, and a thread some columns of these.
template <int kCount, typename T>
__global__ void __launch_bounds__(kThreads)
    ColumnAmaxKernel(RowGroups groups, const T* x, int64_t columns, Accumulate<T>* amax) {
  using A = Accumulate<T>;
  groups.CheckAll();
  const int64_t first = int64_t(blockIdx.x) * kRowsOfBlock;
  const int64_t end = first + kRowsOfBlock < groups.bound ? first + kRowsOfBlock : groups.bound;
  for (int64_t i = int64_t(threadIdx.x) * kCount; i < columns; i += blockDim.x * kCount) {
    A most[kCount] = {};
    int group = -1;
    const auto note = [&] {
      if (group < 0) return;
      for (int k = 0; k < kCount; ++k) {
        RaiseTo(amax + group * columns + i + k, most[k]);
        most[k] = 0;
      }
    };
    for (int64_t r = first; r < end; ++r) {
      if (!groups.Has(r)) continue;
      if (const int of_row = groups.Of(r); of_row != group) {
        note();
        group = of_row;
      }
      const auto xs = LoadPack<T, kCount>(x + r * columns + i);
      for (int k = 0; k < kCount; ++k) most[k] = std::fmax(most[k], std::abs(A(xs.v[k])));
    }
    note();
  }
}

// What the numbers of each line are multiplied by, and its inverse.
template <typename A>
__global__ void __launch_bounds__(kThreads)
    LineFactorsKernel(const A* amax, int64_t count, A largest, A* factors, A* scales) {
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  constexpr A kLeast = 0x1p-100f;  // So that the factor is finite.
  const A factor = amax[i] == 0 ? A(1) : largest / Max()(amax[i], kLeast);
  factors[i] = factor;
  scales[i] = 1 / factor;
}

// What the numbers of each group are multiplied by, and its inverse. A block has a group.
template <typename A>
__global__ void __launch_bounds__(kThreads)
    FactorKernel(const A* amax, int64_t values, A largest, A* factors, A* scales) {
  A most = 0;
  for (int64_t i = threadIdx.x; i < values; i += kThreads) {
    most = Max()(most, amax[blockIdx.x * values + i]);
  }
  most = BlockReduce(most, Max(), A(0));
  if (threadIdx.x != 0) return;
  constexpr A kLeast = 0x1p-100f;  // So that the factor is finite.
  const A factor = most == 0 ? A(1) : largest / Max()(most, kLeast);
  factors[blockIdx.x] = factor;
  scales[blockIdx.x] = 1 / factor;
}

template <typename T>
struct RoundedRows {
  const T* x;
  const Accumulate<T>* factors;
  T* y;
  int64_t columns;
};

template <typename Format, int kCount, typename T, ScaleOf kScale>
__global__ void __launch_bounds__(kThreads) RoundKernel(RowGroups groups, RoundedRows<T> rows) {
  using A = Accumulate<T>;
  groups.CheckAll();
  for (int64_t r = blockIdx.x; r < groups.bound; r += gridDim.x) {
    if (!groups.Has(r)) continue;
    const A* const of_row =
        rows.factors + (kScale == ScaleOf::kGroup ? groups.Of(r)
                        : kScale == ScaleOf::kRow ? r
                                                  : groups.Of(r) * rows.columns);
    Pack<A, kCount> factors;
    if constexpr (kScale != ScaleOf::kColumn) {
      const A factor = *of_row;
      for (int k = 0; k < kCount; ++k) factors.v[k] = factor;
    }
    for (int64_t i = int64_t(threadIdx.x) * kCount; i < rows.columns; i += blockDim.x * kCount) {
      const auto xs = LoadPack<T, kCount>(rows.x + r * rows.columns + i);
      if constexpr (kScale == ScaleOf::kColumn) factors = LoadPack<A, kCount>(of_row + i);
      Pack<T, kCount> ys;
      for (int k = 0; k < kCount; ++k) {
        const auto bits = RoundPair<Format, false>(A(xs.v[k]) * factors.v[k], {});
        ys.v[k] = T(ToFloat<Format>(uint8_t(bits)));
      }
      StoreRow(rows.y + r * rows.columns + i, ys);
    }
  }
}

template <typename T>
void FindAmax(Exec& exec, const GroupedAmaxArgs& args) {
  constexpr int kPack = kPackOf<T>;
  const int64_t columns = args.x.shape.back();
  const RowGroups groups =
      GroupsOf(args.x, args.offsets,
               GroupsOfScales(args.x, args.offsets, args.scale_of, args.amax.elements()));
  const T* const x = args.x.as<T>();
  auto* const amax = args.amax.as<Accumulate<T>>();
  const bool by_row = args.scale_of == ScaleOf::kRow;
  if (args.write == Write::kOverwrite && !by_row) {
    ThrowIfError(cudaMemsetAsync(amax, 0, args.amax.bytes(), StreamOf(exec)), "grouped_round amax");
  }
  const bool packed = CanPack<T>(columns, x);
  const Grid grid = {RowBlocks(groups.bound),
                     RowThreads(packed ? columns / kPack : columns, kThreads)};
  if (by_row) {
    const auto kernel = packed ? RowAmaxKernel<kPack, T> : RowAmaxKernel<1, T>;
    return Launch(exec, grid, kernel, groups, x, columns, amax, args.write == Write::kAdd);
  }
  if (args.scale_of == ScaleOf::kColumn) {
    const Grid of_blocks = {CeilDiv(groups.bound, kRowsOfBlock), grid.threads};
    const auto kernel = packed ? ColumnAmaxKernel<kPack, T> : ColumnAmaxKernel<1, T>;
    return Launch(exec, of_blocks, kernel, groups, x, columns, amax);
  }
  Launch(exec, grid, packed ? AmaxKernel<kPack, T> : AmaxKernel<1, T>, groups, x, columns, amax);
}

template <typename Format, ScaleOf kScale, typename T>
void RoundAll(Exec& exec, const RowGroups& groups, const RoundedRows<T>& rows) {
  constexpr int kPack = kPackOf<T>;
  const bool packed = CanPack<T>(rows.columns, rows.x, rows.y);
  const Grid grid = {RowBlocks(groups.bound),
                     RowThreads(packed ? rows.columns / kPack : rows.columns, kThreads)};
  const auto kernel =
      packed ? RoundKernel<Format, kPack, T, kScale> : RoundKernel<Format, 1, T, kScale>;
  Launch(exec, grid, kernel, groups, rows);
}

template <typename Format, typename T>
void Round(Exec& exec, const GroupedRoundArgs& args) {
  using A = Accumulate<T>;
  const int64_t columns = args.x.shape.back(), count = args.scales.elements();
  const bool of_groups = args.scale_of == ScaleOf::kGroup;
  A* const factors = ScratchOf<A>(exec, count);
  const A* const amax = args.amax.as<A>();
  constexpr A largest = Format::kLargest;
  A* const scales = args.scales.as<A>();
  if (of_groups) {
    Launch(exec, {count, kThreads}, FactorKernel<A>, amax, args.amax.elements() / count, largest,
           factors, scales);
  } else {
    Launch(exec, {CeilDiv(count, kThreads), kThreads}, LineFactorsKernel<A>, amax, count, largest,
           factors, scales);
  }
  const RowGroups groups =
      GroupsOf(args.x, args.offsets, GroupsOfScales(args.x, args.offsets, args.scale_of, count));
  const RoundedRows<T> rows = {args.x.as<T>(), factors, args.y.as<T>(), columns};
  if (of_groups) {
    RoundAll<Format, ScaleOf::kGroup>(exec, groups, rows);
  } else if (args.scale_of == ScaleOf::kRow) {
    RoundAll<Format, ScaleOf::kRow>(exec, groups, rows);
  } else {
    RoundAll<Format, ScaleOf::kColumn>(exec, groups, rows);
  }
}

}  // namespace

void GroupedAmax(Exec& exec, const GroupedAmaxArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) { FindAmax<decltype(scalar)>(exec, args); });
}

void GroupedRound(Exec& exec, const GroupedRoundArgs& args) {
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    DispatchNarrow(args.format,
                   [&](auto format) { Round<decltype(format), decltype(scalar)>(exec, args); });
  });
}

}  // namespace trainyard::cuda
