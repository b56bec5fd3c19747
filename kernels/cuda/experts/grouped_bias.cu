// All kernels are bound by memory: rows are read once, or read and written once. A binary search
// finds the group of a row in the offsets, which come from the cache.

#include "kernels/cuda/failure.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/rows.h"
#include "kernels/experts/grouped_bias.h"

namespace trainyard::cuda {
namespace {

struct BiasGroups {
  const int32_t* offsets;  // [count + 1]
  int count;
  int64_t bound;
  Failure fail = {};

  __device__ void Check(int g) const {
    const int32_t begin = offsets[g], end = offsets[g + 1];
    if (begin >= 0 && begin <= end && end <= bound) return;
    fail("grouped_bias offsets: group % has rows % to % of %", g, begin, end, bound);
  }
  // The threads of the first block check all groups.
  __device__ void CheckAll() const {
    if (blockIdx.x != 0) return;
    for (int g = int(threadIdx.x); g < count; g += int(blockDim.x)) Check(g);
  }
  __device__ bool Has(int64_t row) const { return row >= offsets[0] && row < offsets[count]; }
  // Returns the group of a row, which must belong to one: offsets[low] <= row < offsets[high].
  __device__ int Of(int64_t row) const {
    int low = 0, high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (offsets[middle] <= row ? low : high) = middle;
    }
    return low;
  }
};

BiasGroups GroupsOf(const ConstTensor& offsets, const ConstTensor& rows) {
  return {offsets.as<int32_t>(), int(offsets.elements() - 1), rows.shape.rows()};
}

template <typename T>
struct Forward {
  using A = Accumulate<T>;
  const T* bias;
  const A* w;  // May be null.
  T* y;
  BiasGroups groups;
  int64_t n;
};

template <int kCount, typename T>
__global__ void __launch_bounds__(256) ForwardKernel(Forward<T> args) {
  using A = Accumulate<T>;
  const int64_t n = args.n;
  args.groups.CheckAll();
  for (int64_t r = blockIdx.x; r < args.groups.bound; r += gridDim.x) {
    if (!args.groups.Has(r)) continue;
    const T* bias = args.bias + args.groups.Of(r) * n;
    const A weight = args.w != nullptr ? args.w[r] : A(1);
    for (int64_t i = threadIdx.x * kCount; i < n; i += blockDim.x * kCount) {
      const auto biases = LoadPack<T, kCount>(bias + i),
                 ys = LoadPack<T, kCount>(args.y + r * n + i);
      Pack<T, kCount> sums;
      for (int k = 0; k < kCount; ++k) sums.v[k] = T(A(ys.v[k]) + weight * A(biases.v[k]));
      StorePack(args.y + r * n + i, sums);
    }
  }
}

template <typename T>
struct FactorGradient {
  using A = Accumulate<T>;
  const T* dy;
  const T* bias;
  A* dw;
  BiasGroups groups;
  int64_t n;
};

template <int kCount, typename T>
__global__ void __launch_bounds__(256) FactorGradientKernel(FactorGradient<T> args) {
  using A = Accumulate<T>;
  const int64_t n = args.n;
  args.groups.CheckAll();
  for (int64_t r = blockIdx.x; r < args.groups.bound; r += gridDim.x) {
    if (!args.groups.Has(r)) continue;
    const T* bias = args.bias + args.groups.Of(r) * n;
    A along = 0;
    for (int64_t i = threadIdx.x * kCount; i < n; i += blockDim.x * kCount) {
      const auto biases = LoadPack<T, kCount>(bias + i),
                 dys = LoadPack<T, kCount>(args.dy + r * n + i);
      for (int k = 0; k < kCount; ++k) along += A(dys.v[k]) * A(biases.v[k]);
    }
    along = BlockSum(along);
    if (threadIdx.x == 0) args.dw[r] += along;
  }
}

template <typename T>
struct Gradient {
  using A = Accumulate<T>;
  const T* dy;
  const A* w;  // May be null.
  A* dbias;
  BiasGroups groups;
  int64_t n, tiles;
  bool add;
};

// A block has a group and a tile of columns: kLanes packs side by side. kDepth threads divide the
// rows of a pack, and their sums are added at the end, always in the same order.
constexpr int kLanes = 32, kDepth = 8;

template <int kCount, typename T>
__global__ void __launch_bounds__(256) GradientKernel(Gradient<T> args) {
  using A = Accumulate<T>;
  __shared__ A partial[kDepth][kLanes * kCount];
  const int lane = int(threadIdx.x) % kLanes, depth = int(threadIdx.x) / kLanes;
  for (int64_t block = blockIdx.x; block < args.groups.count * args.tiles; block += gridDim.x) {
    const int g = int(block / args.tiles);
    args.groups.Check(g);
    const int64_t first = (block % args.tiles * kLanes + lane) * kCount;
    A sum[kCount] = {};
    if (first < args.n) {
      for (int64_t r = args.groups.offsets[g] + depth; r < args.groups.offsets[g + 1];
           r += kDepth) {
        const A weight = args.w != nullptr ? args.w[r] : A(1);
        const auto dys = LoadPack<T, kCount>(args.dy + r * args.n + first);
        for (int k = 0; k < kCount; ++k) sum[k] += weight * A(dys.v[k]);
      }
    }
    for (int k = 0; k < kCount; ++k) partial[depth][lane * kCount + k] = sum[k];
    __syncthreads();
    for (int c = int(threadIdx.x); c < kLanes * kCount; c += kLanes * kDepth) {
      const int64_t column = block % args.tiles * kLanes * kCount + c;
      if (column >= args.n) continue;
      A* const dbias = args.dbias + g * args.n + column;
      A all = args.add ? *dbias : A(0);
      for (int d = 0; d < kDepth; ++d) all += partial[d][c];
      *dbias = all;
    }
    __syncthreads();  // Before the sums of the next group are written.
  }
}

template <typename T, typename Args>
void LaunchRows(Exec& exec, const Args& args, bool packed, void (*packs)(Args),
                void (*scalars)(Args)) {
  const int64_t columns = packed ? args.n / kPackOf<T> : args.n;
  Launch(exec, {RowBlocks(args.groups.bound), RowThreads(columns, 256)}, packed ? packs : scalars,
         args);
}

}  // namespace

void GroupedBiasForward(Exec& exec, const GroupedBiasForwardArgs& args) {
  DispatchFloat(args.y.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    const Forward<T> of = {.bias = args.bias.as<T>(),
                           .w = args.w.data != nullptr ? args.w.as<A>() : nullptr,
                           .y = args.y.as<T>(),
                           .groups = GroupsOf(args.offsets, args.y),
                           .n = args.y.shape.back()};
    LaunchRows<T>(exec, of, CanPack<T>(of.n, of.bias, of.y), ForwardKernel<kPackOf<T>, T>,
                  ForwardKernel<1, T>);
  });
}

void GroupedBiasGradient(Exec& exec, const GroupedBiasGradientArgs& args) {
  DispatchFloat(args.dy.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    Gradient<T> of = {.dy = args.dy.as<T>(),
                      .w = args.w.data != nullptr ? args.w.as<A>() : nullptr,
                      .dbias = args.dbias.as<A>(),
                      .groups = GroupsOf(args.offsets, args.dy),
                      .n = args.dy.shape.back(),
                      .tiles = 0,
                      .add = args.write == Write::kAdd};
    const bool packed = CanPack<T>(of.n, of.dy);
    of.tiles = CeilDiv(of.n, kLanes * (packed ? kPackOf<T> : 1));
    const Grid grid = {std::min(of.groups.count * of.tiles, kMaxBlocks), kLanes * kDepth};
    Launch(exec, grid, packed ? GradientKernel<kPackOf<T>, T> : GradientKernel<1, T>, of);
  });
}

// One block for each row, because dw is a sum over the row.
void GroupedBiasFactorGradient(Exec& exec, const GroupedBiasFactorGradientArgs& args) {
  DispatchFloat(args.dy.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    const FactorGradient<T> of = {.dy = args.dy.as<T>(),
                                  .bias = args.bias.as<T>(),
                                  .dw = args.dw.as<A>(),
                                  .groups = GroupsOf(args.offsets, args.dy),
                                  .n = args.dy.shape.back()};
    LaunchRows<T>(exec, of, CanPack<T>(of.n, of.dy, of.bias), FactorGradientKernel<kPackOf<T>, T>,
                  FactorGradientKernel<1, T>);
  });
}

}  // namespace trainyard::cuda
