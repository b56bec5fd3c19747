// Any dtype and shape: tiles of the output, each the product of two panels that pass through shared
// memory, summed in registers. Bound by shared memory, at about half of the chip's FMA rate. Blocks
// go over the tiles of rows that the offsets make, which they find for themselves.
#include "kernels/cuda/group_tiles.h"
#include "kernels/cuda/kernels.h"
#include "kernels/grouped_matmul.h"

namespace trainyard::cuda {
namespace {

constexpr int kTile = 64;   // Of the output, in both directions.
constexpr int kDepth = 16;  // Of the reduction, at a time.
constexpr int kEach = 4;    // Outputs of a thread, in both directions.
constexpr int kAcross = kTile / kEach, kThreads = kAcross * kAcross;

// kDeep: neighbours in memory are neighbours in the reduction. Else they are along the output.
enum class Order { kDeep, kAlong };

// Lines of a matrix that the output has rows or columns for; the first kTile, where there are more.
template <typename T, Order kOrder>
struct Panel {
  const T* data;
  int64_t stride;  // Between what are not neighbours.
  int64_t lines;

  __device__ T At(int64_t line, int64_t depth) const {
    return kOrder == Order::kDeep ? data[line * stride + depth] : data[depth * stride + line];
  }
};

template <typename A>
struct alignas(16) Stage {
  A v[kDepth][kTile + 16 / sizeof(A)];
};

// Steps [depth, depth + kDepth) of the reduction, of `end`; zeros beyond it and beyond the lines.
template <typename A, typename T, Order kOrder>
__device__ void Load(const Panel<T, kOrder>& panel, int64_t depth, int64_t end, Stage<A>& stage) {
#pragma unroll
  for (int n = 0; n < kTile * kDepth / kThreads; ++n) {
    const int i = int(threadIdx.x) + n * kThreads;
    const int line = kOrder == Order::kDeep ? i / kDepth : i % kTile;
    const int step = kOrder == Order::kDeep ? i % kDepth : i / kTile;
    const bool inside = line < panel.lines && depth + step < end;
    stage.v[step][line] = inside ? A(panel.At(line, depth + step)) : A(0);
  }
}

template <typename A>
struct Sums {
  A v[kEach][kEach] = {};
};

// Adds the products of this thread's lines, from kEach * (threadIdx.x / kAcross) and
// kEach * (threadIdx.x % kAcross) on, over `depth` steps.
template <typename T, Order kOrderA, Order kOrderB>
__device__ auto Multiply(const Panel<T, kOrderA>& a, const Panel<T, kOrderB>& b, int64_t depth) {
  using A = Accumulate<T>;
  __shared__ Stage<A> stage_a, stage_b;
  Sums<A> sums;
  for (int64_t begin = 0; begin < depth; begin += kDepth) {
    Load(a, begin, depth, stage_a);
    Load(b, begin, depth, stage_b);
    __syncthreads();
#pragma unroll
    for (int step = 0; step < kDepth; ++step) {
      const A* from_a = &stage_a.v[step][threadIdx.x / kAcross * kEach];
      const A* from_b = &stage_b.v[step][threadIdx.x % kAcross * kEach];
      A left[kEach], right[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) left[i] = from_a[i], right[i] = from_b[i];
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) sums.v[i][j] += left[i] * right[j];
      }
    }
    __syncthreads();  // Before the stages are written again.
  }
  return sums;
}

// Calls body(line of a, line of b, sum) for this thread's outputs.
template <typename A, typename Body>
__device__ void ForEachSum(const Sums<A>& sums, const Body& body) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      body(int(threadIdx.x) / kAcross * kEach + i, int(threadIdx.x) % kAcross * kEach + j,
           sums.v[i][j]);
    }
  }
}

// out[r, c] = sum over `depth` of in[r, :] and the line c of the group's weight.
template <typename T>
struct Rows {
  const T* in;
  const T* weight;  // Of a group, in Order::kDeep [columns, depth], else [depth, columns].
  T* out;
  int64_t depth, columns;
};

template <typename T, Order kWeight>
__global__ void __launch_bounds__(kThreads) RowsKernel(Groups groups, Rows<T> rows) {
  const GroupTiles<kTile> tiles(groups, DynamicShared<int32_t>());
  const int64_t depth = rows.depth, columns = rows.columns;
  const int64_t across = (columns + kTile - 1) / kTile, count = tiles.count() * across;
  for (int64_t i = blockIdx.x; i < count; i += gridDim.x) {
    const RowTile tile = tiles[int32_t(i / across)];
    const int64_t column = i % across * kTile;
    const T* weight = rows.weight + tile.group * (depth * columns);
    const Panel<T, Order::kDeep> a = {rows.in + tile.begin * depth, depth, tile.rows};
    const bool deep = kWeight == Order::kDeep;
    const Panel<T, kWeight> b = {weight + column * (deep ? depth : 1), deep ? depth : columns,
                                 columns - column};
    const auto sums = Multiply(a, b, depth);
    T* out = rows.out + tile.begin * columns + column;
    ForEachSum(sums, [&](int r, int c, auto sum) {
      if (r < a.lines && c < b.lines) out[r * columns + c] = T(sum);
    });
  }
}

template <typename T>
struct Weights {
  const T* dy;
  const T* x;
  Accumulate<T>* dweight;
  int64_t outputs, inputs;
  bool add;
};

template <typename T>
__global__ void __launch_bounds__(kThreads) WeightsKernel(Groups groups, Weights<T> weights) {
  const int64_t outputs = weights.outputs, inputs = weights.inputs;
  const int64_t across = (inputs + kTile - 1) / kTile, down = (outputs + kTile - 1) / kTile;
  const int group = int(blockIdx.x / (across * down));
  const int64_t output = blockIdx.x / across % down * kTile, input = blockIdx.x % across * kTile;
  groups.Check(group);
  const int64_t begin = groups.offsets[group], rows = groups.offsets[group + 1] - begin;
  const Panel<T, Order::kAlong> a = {weights.dy + begin * outputs + output, outputs,
                                     outputs - output};
  const Panel<T, Order::kAlong> b = {weights.x + begin * inputs + input, inputs, inputs - input};
  const auto sums = Multiply(a, b, rows);
  Accumulate<T>* out = weights.dweight + (group * outputs + output) * inputs + input;
  ForEachSum(sums, [&](int n, int k, auto sum) {
    if (n >= a.lines || k >= b.lines) return;
    auto& to = out[n * inputs + k];
    to = weights.add ? to + sum : sum;
  });
}

Groups GroupsOf(const ConstTensor& offsets, int64_t bound) {
  return {offsets.as<int32_t>(), int(offsets.elements() - 1), bound};
}

template <Order kWeight, typename T>
void RunRows(Exec& exec, const Groups& groups, const Rows<T>& rows) {
  constexpr int64_t kBlocks = 132 * 4;  // At work at a time.
  const int64_t tiles = groups.MostTiles(kTile) * CeilDiv(rows.columns, kTile);
  Launch(exec, {std::min(tiles, kBlocks), kThreads, groups.shared()}, RowsKernel<T, kWeight>,
         groups, rows);
}

}  // namespace

void GroupedMatMulForward(Exec& exec, const GroupedMatMulForwardArgs& args) {
  const Groups groups = GroupsOf(args.offsets, args.x.shape.rows());
  DispatchFloat(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    RunRows<Order::kDeep>(exec, groups,
                          Rows<T>{.in = args.x.as<T>(),
                                  .weight = args.weight.as<T>(),
                                  .out = args.y.as<T>(),
                                  .depth = args.x.shape.back(),
                                  .columns = args.y.shape.back()});
  });
}

void GroupedMatMulInputGradient(Exec& exec, const GroupedMatMulInputGradientArgs& args) {
  const Groups groups = GroupsOf(args.offsets, args.dy.shape.rows());
  DispatchFloat(args.dy.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    RunRows<Order::kAlong>(exec, groups,
                           Rows<T>{.in = args.dy.as<T>(),
                                   .weight = args.weight.as<T>(),
                                   .out = args.dx.as<T>(),
                                   .depth = args.dy.shape.back(),
                                   .columns = args.dx.shape.back()});
  });
}

void GroupedMatMulWeightGradient(Exec& exec, const GroupedMatMulWeightGradientArgs& args) {
  const Groups groups = GroupsOf(args.offsets, args.dy.shape.rows());
  const int64_t outputs = args.dy.shape.back(), inputs = args.x.shape.back();
  const int64_t tiles = groups.groups * CeilDiv(outputs, kTile) * CeilDiv(inputs, kTile);
  DispatchFloat(args.dy.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const Weights<T> weights = {.dy = args.dy.as<T>(),
                                .x = args.x.as<T>(),
                                .dweight = args.dweight.as<Accumulate<T>>(),
                                .outputs = outputs,
                                .inputs = inputs,
                                .add = args.write == Write::kAdd};
    Launch(exec, {tiles, kThreads}, WeightsKernel<T>, groups, weights);
  });
}

}  // namespace trainyard::cuda
