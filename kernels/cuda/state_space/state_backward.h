// What the backward passes of state_scan.h and state_ends.h share: the gradients of values, and
// sums over rows of a tile. The formulas are in kernels/cpu/state_space/state_scan_backward.cc.

#pragma once

#include "kernels/cuda/columns.h"
#include "kernels/cuda/state_space/state_chunk.h"

namespace trainyard::cuda {

// A tile of numbers in shared memory, whose rows or columns are summed. Rows have one element more
// than needed, so that both begin in different banks.
template <typename A, int kTile>
struct SumTile {
  static constexpr int kRow = kTile + 1;
  static constexpr size_t kBytes = sizeof(A) * kTile * kRow;

  A* data;

  __device__ A& at(int row, int column) const { return data[row * kRow + column]; }
  __device__ A RowSum(int row) const {
    A sum = 0;
    for (int i = 0; i < kTile; ++i) sum += at(row, i);
    return sum;
  }
  __device__ A ColumnSum(int column) const {
    A sum = 0;
    for (int i = 0; i < kTile; ++i) sum += at(i, column);
    return sum;
  }
};

// The rows of a tensor that a tile has: `count` by `width` elements.
template <typename T, int kNeighbours>
struct TileRows {
  const T* data;
  int64_t stride;
  int count, width;

  // Neighbours of a row; zeros outside.
  __device__ Pack<Accumulate<T>, kNeighbours> At(int row, int column) const {
    Pack<Accumulate<T>, kNeighbours> wide = {};
    if (row >= count || column >= width) return wide;
    const auto pack = LoadPack<T, kNeighbours>(data + row * stride + column);
    for (int i = 0; i < kNeighbours; ++i) wide.v[i] = Accumulate<T>(pack.v[i]);
    return wide;
  }
};

// Sums over columns of a head's tile, for each token: [slots, T, H].
template <typename A>
struct TokenSums {
  A* sums;
  int64_t slots, steps;  // Numbers of a slot.

  __device__ A operator()(int64_t at) const {
    A sum = sums[at];
#pragma unroll 1
    for (int64_t slot = 1; slot < slots; ++slot) sum += sums[slot * steps + at];
    return sum;
  }
};

// Gradients of values: of V = step x, and with them of x.
template <typename T>
struct Values {
  using A = Accumulate<T>;
  const T* xbc;
  const T* dy;       // Null: the ends alone have a gradient.
  const A* d;        // Null if dy is.
  const T* weights;  // Decayed scores [chunks, H, Q, Q]; null if dy is.
  const T* ends;     // Copies of the gradients of states at the end of chunks, or of parts.
  StateSteps<A> steps;
  T* dxbc;
  TokenSums<A> of_end;   // V . (exp(c_end - c) B G)
  TokenSums<A> of_step;  // x . dV
  TokenSums<A> of_d;     // x . dy
  StateShape shape;
};

// A block has a chunk's tokens, for a tile of a head's columns.
template <typename Product, typename T, bool kWithin>
__global__ void __launch_bounds__(Product::kThreads, 1) ValuesKernel(Values<T> args) {
  using A = Accumulate<T>;
  constexpr int kTile = Product::kTile, kNeighbours = Product::kNeighbours;
  std::byte* const shared = DynamicShared<std::byte>();
  const SumTile<A, kTile> tile = {reinterpret_cast<A*>(shared + Product::kShared)};
  __shared__ A step[kTile], to_end[kTile];
  const StateShape& s = args.shape;
  const int64_t across = CeilDiv(s.p, kTile), slot = blockIdx.x % across, column = slot * kTile;
  const int64_t head = blockIdx.x / across % s.heads, k = blockIdx.x / across / s.heads;
  const int64_t group = head / s.group_heads(), row = s.Row(k);
  const int count = s.Count(k), width = int(s.p - column < kTile ? s.p - column : kTile);
  for (int t = int(threadIdx.x); t < kTile; t += Product::kThreads) {
    const int64_t at = (row + t) * s.heads + head;
    step[t] = t < count ? args.steps.step[at] : A(0);
    to_end[t] = t < count ? args.steps.to_end[at] : A(0);
  }
  const T* const xbc = args.xbc + row * s.columns();
  const TileRows<T, kNeighbours> x = {xbc + head * s.p + column, s.columns(), count, width};
  // Stores the sums over the rows of the tile.
  const auto store = [&](const TokenSums<A>& sums) {
    __syncthreads();
    for (int t = int(threadIdx.x); t < count; t += Product::kThreads) {
      sums.sums[slot * sums.steps + (row + t) * s.heads + head] = tile.RowSum(t);
    }
    __syncthreads();
  };
  const Panel<T, Order::kDeep> b = {xbc + s.b(group), s.columns(), count};
  const Panel<T, Order::kAlong> end = {args.ends + s.Copy(kWithin ? k : k / s.part_chunks, group) +
                                           head % s.group_heads() * s.p + column,
                                       s.group_columns(), width};
  Product dv(b, end, s.n, shared);
  dv.Transform([&](int t, int, A sum) { return sum * to_end[t]; });
  dv.ForEachSum([&](int t, int p, const auto& sums) {
    const auto xs = x.At(t, p);
    for (int i = 0; i < kNeighbours; ++i) tile.at(t, p + i) = xs.v[i] * step[t] * sums.v[i];
  });
  store(args.of_end);
  [[maybe_unused]] const TileRows<T, kNeighbours> dy = {
      kWithin ? args.dy + row * s.inner() + head * s.p + column : nullptr, s.inner(), count, width};
  A d = 0;
  if constexpr (kWithin) {
    const Panel<T, Order::kAlong> weights = {args.weights + (k * s.heads + head) * kTile * kTile,
                                             kTile, count};
    const Panel<T, Order::kAlong> later = {dy.data, s.inner(), width};
    dv.AddProduct(weights, later, count, shared);
    d = args.d[head];
  }
  dv.ForEachSum([&](int t, int p, const auto& sums) {
    const auto xs = x.At(t, p);
    for (int i = 0; i < kNeighbours; ++i) tile.at(t, p + i) = xs.v[i] * sums.v[i];
  });
  store(args.of_step);
  T* const to = args.dxbc + row * s.columns() + head * s.p + column;
  dv.ForEachSum([&](int t, int p, auto sums) {
    for (int i = 0; i < kNeighbours; ++i) sums.v[i] *= step[t];
    if constexpr (kWithin) {
      const auto xs = x.At(t, p), dys = dy.At(t, p);
      for (int i = 0; i < kNeighbours; ++i) {
        tile.at(t, p + i) = xs.v[i] * dys.v[i];
        sums.v[i] += d * dys.v[i];
      }
    }
    if (t < count && p < width) StoreRounded(to + t * s.columns() + p, sums);
  });
  if constexpr (kWithin) store(args.of_d);
}

template <typename Product, bool kWithin, typename T>
void RunValues(Exec& exec, const Values<T>& args) {
  const StateShape& s = args.shape;
  const size_t shared = Product::kShared + SumTile<Accumulate<T>, Product::kTile>::kBytes;
  Launch(exec, {s.chunks() * s.heads * CeilDiv(s.p, Product::kTile), Product::kThreads, shared},
         ValuesKernel<Product, T, kWithin>, args);
}

// Adds columns of sums [rows, 3 H] to gradients of dt_bias, a_log and d.
template <typename A>
struct AddParameters {
  A* gradients[3];  // The last may be null.
  Write writes[3];
  int64_t heads;
  __device__ void operator()(int64_t, int64_t c, A sum) const {
    A* to = gradients[0];
    Write write = writes[0];
    if (c >= heads) to = gradients[1], write = writes[1];
    if (c >= 2 * heads) to = gradients[2], write = writes[2];
    if (to == nullptr) return;
    to += c % heads;
    *to = (write == Write::kAdd ? *to : A(0)) + sum;
  }
};

template <typename A>
void RunAddParameters(Exec& exec, const A* sums, int64_t rows, const AddParameters<A>& add) {
  constexpr int kWidth = 8;
  SumRuns(exec, sums, RowRuns{rows, 3 * add.heads, rows}, kWidth, add);
}

}  // namespace trainyard::cuda
