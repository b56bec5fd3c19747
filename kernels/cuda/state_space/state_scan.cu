// See state_chunk.h. Bound by memory and, near that, by the products: for a token and head, 4 P N
// FLOPs with states and 2 Q P with the Q tokens of its chunk.

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/state_space/state_chunk.h"

namespace trainyard::cuda {
namespace {

// The weights of pairs of tokens: exp(c[t] - c[s]) (C[t] . B[s]) step[s] for tokens s <= t of the
// document of t, and zeros for others.
template <typename T>
struct Weights {
  const T* xbc;
  StateSteps<Accumulate<T>> steps;
  T* weights;  // [chunks, H, Q, Q]
  StateShape shape;
};

// A block has the pairs of a chunk, for all heads of a group.
template <typename Product, typename T>
__global__ void __launch_bounds__(Product::kThreads, 1) WeightsKernel(Weights<T> args) {
  using A = Accumulate<T>;
  constexpr int kTile = Product::kTile, kNeighbours = Product::kNeighbours;
  __shared__ A log[kTile], step[kTile];
  __shared__ int seen[kTile];  // From this token on.
  const StateShape& s = args.shape;
  const int64_t k = blockIdx.x / s.groups, group = blockIdx.x % s.groups, row = s.Row(k);
  const int count = s.Count(k);
  const T* const xbc = args.xbc + row * s.columns();
  const Panel<T, Order::kDeep> c = {xbc + s.c(group), s.columns(), count};
  const Panel<T, Order::kDeep> b = {xbc + s.b(group), s.columns(), count};
  const Product scores(c, b, s.n, DynamicShared<std::byte>());
  for (int t = int(threadIdx.x); t < kTile; t += Product::kThreads) {
    seen[t] = s.FirstSeen(row, t, count, /*none=*/kTile);
  }
  for (int64_t head = group * s.group_heads(); head < (group + 1) * s.group_heads(); ++head) {
    for (int t = int(threadIdx.x); t < kTile; t += Product::kThreads) {
      const int64_t at = (row + t) * s.heads + head;
      log[t] = t < count ? args.steps.log[at] : A(0);
      step[t] = t < count ? args.steps.step[at] : A(0);
    }
    __syncthreads();
    T* const to = args.weights + (k * s.heads + head) * kTile * kTile;
    scores.ForEachSum([&](int t, int first, auto sums) {
      for (int i = 0; i < kNeighbours; ++i) {
        const int from = first + i;
        const A decay = from <= t && from >= seen[t] ? std::exp(log[t] - log[from]) : A(0);
        sums.v[i] *= decay * step[from];
      }
      StoreRounded(to + t * kTile + first, sums);
    });
    __syncthreads();  // Before the next head's steps are written.
  }
}

template <typename T>
struct Output {
  const T* xbc;
  const Accumulate<T>* d;
  const Accumulate<T>* log;
  const T* starts;  // Copies of the states.
  const T* weights;
  T* y;
  StateShape shape;
};

// A block has a chunk's tokens, for a tile of a head's columns.
template <typename Product, typename T>
__global__ void __launch_bounds__(Product::kThreads, Product::kBlocks)
    OutputKernel(Output<T> args) {
  using A = Accumulate<T>;
  constexpr int kTile = Product::kTile, kNeighbours = Product::kNeighbours;
  __shared__ A from_start[kTile];
  const StateShape& s = args.shape;
  const int64_t across = CeilDiv(s.p, kTile), column = blockIdx.x % across * kTile;
  const int64_t head = blockIdx.x / across % s.heads, k = blockIdx.x / across / s.heads;
  const int64_t group = head / s.group_heads(), row = s.Row(k);
  const int count = s.Count(k);
  for (int t = int(threadIdx.x); t < kTile; t += Product::kThreads) {
    from_start[t] = t < count ? s.FromStart(args.log, row, t, head) : A(0);
  }
  std::byte* const shared = DynamicShared<std::byte>();
  const T* const xbc = args.xbc + row * s.columns();
  const T* const x = xbc + head * s.p + column;
  const Panel<T, Order::kDeep> c = {xbc + s.c(group), s.columns(), count};
  const Panel<T, Order::kAlong> start = {
      args.starts + s.Copy(k, group) + head % s.group_heads() * s.p + column, s.group_columns(),
      s.p - column};
  Product y(c, start, s.n, shared);  // Whose barriers are after the writes to from_start.
  y.Transform([&](int t, int, A sum) { return sum * from_start[t]; });
  const Panel<T, Order::kDeep> weights = {args.weights + (k * s.heads + head) * kTile * kTile,
                                          kTile, count};
  const Panel<T, Order::kAlong> values = {x, s.columns(), s.p - column};
  y.AddProduct(weights, values, count, shared);
  const A d = args.d[head];
  T* const to = args.y + row * s.inner() + head * s.p + column;
  y.ForEachSum([&](int t, int p, auto sums) {
    if (t >= count || column + p >= s.p) return;
    const auto xs = LoadPack<T, kNeighbours>(x + t * s.columns() + p);
    for (int i = 0; i < kNeighbours; ++i) sums.v[i] += d * A(xs.v[i]);
    StoreRounded(to + t * s.inner() + p, sums);
  });
}

template <typename Product, typename T>
void Run(Exec& exec, const StateScanForwardArgs& args) {
  using A = Accumulate<T>;
  const StateDims& dims = args.dims;
  const int64_t tokens = args.xbc.shape.rows();
  const StateScratch sizes(dims, tokens, std::is_same_v<Product, TensorProduct>);
  const StateShape shape(args, Product::kTile);
  StateArrays arrays(exec, StateCall::kScan, dims, tokens, args.xbc.dtype);
  const StateSteps<A> steps = {.step = arrays.Take<A>(sizes.steps),
                               .slope = nullptr,
                               .log = arrays.Take<A>(sizes.steps),
                               .to_end = arrays.Take<A>(sizes.steps)};
  T* const scaled = arrays.Take<T>(sizes.values);
  A* const states = arrays.Take<A>(sizes.states);
  T* const starts = arrays.Take<T>(sizes.states);
  T* const weights = arrays.Take<T>(sizes.pairs * dims.heads);
  const T* const xbc = args.xbc.as<T>();

  FindSteps<T>(exec, args, shape, steps);
  Scale(exec, xbc, shape, steps, scaled);
  RunOuter<Product>(exec, Outer<T>{xbc + shape.b(0), scaled, states, shape});
  RunPass(exec, Pass<T>{.states = states,
                        .log = steps.log,
                        .first = args.start.data == nullptr ? nullptr : args.start.as<A>(),
                        .copies = starts,
                        .last = nullptr,
                        .last_row = 0,
                        .shape = shape,
                        .backward = false});
  Launch(exec, {shape.chunks() * shape.groups, Product::kThreads, Product::kShared},
         WeightsKernel<Product, T>, Weights<T>{xbc, steps, weights, shape});
  const int64_t tiles = CeilDiv(shape.p, Product::kTile) * shape.heads;
  Launch(exec, {shape.chunks() * tiles, Product::kThreads, Product::kShared},
         OutputKernel<Product, T>,
         Output<T>{.xbc = xbc,
                   .d = args.d.as<A>(),
                   .log = steps.log,
                   .starts = starts,
                   .weights = weights,
                   .y = args.y.as<T>(),
                   .shape = shape});
}

}  // namespace

void StateScanForward(Exec& exec, const StateScanForwardArgs& args) {
  DispatchFloat(args.xbc.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    WithStateProduct<T>(
        args.dims, [&](auto product) { Run<typename decltype(product)::type, T>(exec, args); },
        args.xbc.data, args.y.data);
  });
}

}  // namespace trainyard::cuda
