// See state_chunk.h for the parts, and kernels/cpu/state_space/state_scan_backward.cc for the
// formulas. Bound by memory and, near that, by the products: for a token and head, 12 P N FLOPs
// with states and 6 Q P with the Q tokens of its chunk.

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/state_space/state_backward.h"

namespace trainyard::cuda {
namespace {

// dy exp(c), and 0 for tokens whose document begins in their chunk.
template <typename T>
struct DecayBody {
  using A = Accumulate<T>;
  const T* dy;
  const A* log;
  StateShape shape;
  T* decayed;

  template <int kCount>
  __device__ void operator()(int64_t row, int64_t column) const {
    const StateShape& s = shape;
    const auto from = LoadPack<T, kCount>(dy + row * s.inner() + column);
    const int64_t in_chunk = s.documents.positions == nullptr ? 0 : row % s.sequence % s.chunk;
    const A factor = s.FromStart(log, row - in_chunk, in_chunk, column / s.p);
    Pack<T, kCount> y;
    for (int i = 0; i < kCount; ++i) y.v[i] = T(A(from.v[i]) * factor);
    StoreRow(decayed + row * s.inner() + column, y);
  }
};

// What pairs of a chunk's tokens have: W (C[t] . B[s]) for each head, and the sum over a group's
// heads of W (dy[t] . V[s]).
template <typename T>
struct Pairs {
  using A = Accumulate<T>;
  const T* xbc;
  const T* dy;
  StateSteps<A> steps;
  T* weights;  // [chunks, H, Q, Q]
  T* sums;     // [chunks, G, Q, Q]
  A* net;      // [T, H]: of a token, its pairs with earlier tokens less those with later ones.
  StateShape shape;
};

// A block has the pairs of a chunk, for all heads of a group.
template <typename Product, typename T>
__global__ void __launch_bounds__(Product::kThreads, 1) PairsKernel(Pairs<T> args) {
  using A = Accumulate<T>;
  constexpr int kTile = Product::kTile, kNeighbours = Product::kNeighbours;
  using Tile = SumTile<A, kTile>;
  std::byte* const shared = DynamicShared<std::byte>();
  const Tile pairs = {reinterpret_cast<A*>(shared + Product::kShared)};
  const Tile sums = {reinterpret_cast<A*>(shared + Product::kShared + Tile::kBytes)};
  __shared__ A log[kTile], step[kTile];
  __shared__ int seen[kTile];  // From this token on.
  const StateShape& s = args.shape;
  const int64_t k = blockIdx.x / s.groups, group = blockIdx.x % s.groups, row = s.Row(k);
  const int count = s.Count(k);
  const T* const xbc = args.xbc + row * s.columns();
  const Panel<T, Order::kDeep> c = {xbc + s.c(group), s.columns(), count};
  const Panel<T, Order::kDeep> b = {xbc + s.b(group), s.columns(), count};
  const Product scores(c, b, s.n, shared);
  for (int i = int(threadIdx.x); i < kTile * Tile::kRow; i += Product::kThreads) sums.data[i] = 0;
  for (int t = int(threadIdx.x); t < kTile; t += Product::kThreads) {
    seen[t] = s.FirstSeen(row, t, count, /*none=*/kTile);
  }
  for (int64_t head = group * s.group_heads(); head < (group + 1) * s.group_heads(); ++head) {
    for (int t = int(threadIdx.x); t < kTile; t += Product::kThreads) {
      const int64_t at = (row + t) * s.heads + head;
      log[t] = t < count ? args.steps.log[at] : A(0);
      step[t] = t < count ? args.steps.step[at] : A(0);
    }
    const Panel<T, Order::kDeep> dy = {args.dy + row * s.inner() + head * s.p, s.inner(), count};
    const Panel<T, Order::kDeep> x = {xbc + head * s.p, s.columns(), count};
    const Product products(dy, x, s.p, shared);  // Whose last barrier is after the writes above.
    T* const weights = args.weights + (k * s.heads + head) * kTile * kTile;
    scores.ForEachSum(products, [&](int t, int first, auto score, const auto& product) {
      for (int i = 0; i < kNeighbours; ++i) {
        const int from = first + i;
        const A decay = from <= t && from >= seen[t] ? std::exp(log[t] - log[from]) : A(0);
        const A along = decay * step[from] * product.v[i];
        pairs.at(t, from) = from < t ? along * score.v[i] : A(0);
        sums.at(t, from) += along;
        score.v[i] *= decay;
      }
      StoreRounded(weights + t * kTile + first, score);
    });
    __syncthreads();
    for (int t = int(threadIdx.x); t < count; t += Product::kThreads) {
      args.net[(row + t) * s.heads + head] = pairs.RowSum(t) - pairs.ColumnSum(t);
    }
    __syncthreads();  // Before the next head's steps and pairs are written.
  }
  T* const to = args.sums + (k * s.groups + group) * kTile * kTile;
  constexpr int kCount = kPackOf<T>;
  for (int i = int(threadIdx.x) * kCount; i < kTile * kTile; i += Product::kThreads * kCount) {
    Pack<T, kCount> rounded;
    for (int n = 0; n < kCount; ++n) rounded.v[n] = T(sums.at(i / kTile, i % kTile + n));
    StoreRow(to + i, rounded);
  }
}

// dB or dC: sums over pairs, and what comes from states.
template <typename T>
struct GroupGradient {
  const T* sums;    // [chunks, G, Q, Q]
  const T* others;  // Column 0 of C for dB, of B for dC; rows are shape.columns() apart.
  const T* values;  // [T, H P]: scaled for dB, decayed dy for dC
  const T* copies;  // Of the gradients at the end, or of the states at the start.
  T* to;            // Column 0 of dB or dC.
  StateShape shape;
};

// A block has a chunk's tokens, for a tile of a group's columns.
template <typename Product, typename T, Order kSums>
__global__ void __launch_bounds__(Product::kThreads, Product::kBlocks)
    GroupKernel(GroupGradient<T> args) {
  constexpr int kTile = Product::kTile;
  std::byte* const shared = DynamicShared<std::byte>();
  const StateShape& s = args.shape;
  const int64_t across = CeilDiv(s.n, kTile), column = blockIdx.x % across * kTile;
  const int64_t group = blockIdx.x / across % s.groups, k = blockIdx.x / across / s.groups;
  const int64_t row = s.Row(k), place = row * s.columns() + group * s.n + column;
  const int count = s.Count(k);
  const Panel<T, kSums> sums = {args.sums + (k * s.groups + group) * kTile * kTile, kTile, count};
  const Panel<T, Order::kAlong> others = {args.others + place, s.columns(), s.n - column};
  Product gradient(sums, others, count, shared);
  const Panel<T, Order::kDeep> values = {args.values + row * s.inner() + group * s.group_columns(),
                                         s.inner(), count};
  const Panel<T, Order::kDeep> copies = {
      args.copies + s.Copy(k, group) + column * s.group_columns(), s.group_columns(), s.n - column};
  gradient.AddProduct(values, copies, s.group_columns(), shared);
  gradient.ForEachSum([&](int t, int n, auto sum) {
    if (t < count && column + n < s.n) StoreRounded(args.to + place + t * s.columns() + n, sum);
  });
}

// exp(c) C S_start . dy, summed over a tile of a head's columns.
template <typename T>
struct FromStart {
  const T* xbc;
  const T* decayed;  // dy exp(c)
  const T* starts;
  TokenSums<Accumulate<T>> sums;
  StateShape shape;
};

template <typename Product, typename T>
__global__ void __launch_bounds__(Product::kThreads, 1) FromStartKernel(FromStart<T> args) {
  using A = Accumulate<T>;
  constexpr int kTile = Product::kTile, kNeighbours = Product::kNeighbours;
  std::byte* const shared = DynamicShared<std::byte>();
  const SumTile<A, kTile> tile = {reinterpret_cast<A*>(shared + Product::kShared)};
  const StateShape& s = args.shape;
  const int64_t across = CeilDiv(s.p, kTile), slot = blockIdx.x % across, column = slot * kTile;
  const int64_t head = blockIdx.x / across % s.heads, k = blockIdx.x / across / s.heads;
  const int64_t group = head / s.group_heads(), row = s.Row(k);
  const int count = s.Count(k), width = int(s.p - column < kTile ? s.p - column : kTile);
  const Panel<T, Order::kDeep> c = {args.xbc + row * s.columns() + s.c(group), s.columns(), count};
  const Panel<T, Order::kAlong> start = {
      args.starts + s.Copy(k, group) + head % s.group_heads() * s.p + column, s.group_columns(),
      width};
  const T* const decayed = args.decayed + row * s.inner() + head * s.p + column;
  Product(c, start, s.n, shared).ForEachSum([&](int t, int p, const auto& sums) {
    const bool there = t < count && p < width;
    Pack<T, kNeighbours> dys = {};
    if (there) dys = LoadPack<T, kNeighbours>(decayed + t * s.inner() + p);
    for (int i = 0; i < kNeighbours; ++i) {
      tile.at(t, p + i) = there ? A(dys.v[i]) * sums.v[i] : A(0);
    }
  });
  __syncthreads();
  for (int t = int(threadIdx.x); t < count; t += Product::kThreads) {
    args.sums.sums[slot * args.sums.steps + (row + t) * s.heads + head] = tile.RowSum(t);
  }
}

// Makes the gradients of the steps from all their terms.
template <typename T>
struct Finish {
  using A = Accumulate<T>;
  const A* a_log;
  StateSteps<A> steps;
  const A* net;
  TokenSums<A> from_start, of_end, of_step, of_d;
  const A* starts;  // [chunks, H N P]: states, and gradients of those at the end.
  const A* ends;
  T* ddt;
  A* sums;  // [chunks, 3 H]
  StateShape shape;
};

constexpr int kFinishThreads = 128;

// This thread's part of the dot product of two arrays.
template <int kCount, typename A>
__device__ A PartOfDot(const A* a, const A* b, int64_t elements) {
  A sum = 0;
#pragma unroll 4
  for (int64_t i = int64_t{threadIdx.x} * kCount; i < elements; i += kFinishThreads * kCount) {
    const auto as = LoadPack<A, kCount>(a + i), bs = LoadPack<A, kCount>(b + i);
    for (int n = 0; n < kCount; ++n) sum += as.v[n] * bs.v[n];
  }
  return sum;
}

// A block has a chunk's tokens of a head.
template <typename T>
__global__ void __launch_bounds__(kFinishThreads) FinishKernel(Finish<T> args) {
  using A = Accumulate<T>;
  __shared__ A da[kFinishThreads];
  const StateShape& s = args.shape;
  const unsigned heads = unsigned(s.heads), head = blockIdx.x % heads, k = blockIdx.x / heads;
  const int64_t row = s.Row(k);
  const int count = s.Count(k), thread = int(threadIdx.x);
  const auto at = [&](int t) { return (row + t) * s.heads + head; };
  const int64_t elements = s.n * s.p, place = (int64_t{k} * s.heads + head) * elements;
  A through = 0;
  if (elements % kPackOf<A> == 0) {
    through = PartOfDot<kPackOf<A>>(args.starts + place, args.ends + place, elements);
  } else {
    through = PartOfDot<1>(args.starts + place, args.ends + place, elements);
  }
  through = BlockSum(through) * s.FromStart(args.steps.log, row, count - 1, head);
  // What is later: a running sum from the last token on.
  const int back = kFinishThreads - 1 - thread;
  A total;
  A later = back < count ? args.net[at(back)] + args.from_start(at(back)) : A(0);
  later = BlockScan(later, &total);
  da[back] = later;
  const A before = thread > 0 && thread <= count ? args.of_end(at(thread - 1)) : A(0);
  const A earlier = BlockScan(before, &total);  // Whose barriers are after the writes to da.
  A sums[3] = {};
  if (thread < count) {
    const A gradient = da[thread] + earlier + through, decay = -std::exp(args.a_log[head]);
    const A d = (args.of_step(at(thread)) + decay * gradient) * args.steps.slope[at(thread)];
    args.ddt[at(thread)] = T(d);
    sums[0] = d;
    sums[1] = gradient * decay * args.steps.step[at(thread)];
    sums[2] = args.of_d(at(thread));
  }
  BlockSums(sums);
  if (thread == 0) {
    for (int i = 0; i < 3; ++i) args.sums[(int64_t{k} * 3 + i) * s.heads + head] = sums[i];
  }
}

// All arrays in scratch memory.
template <typename T>
struct Arrays {
  using A = Accumulate<T>;
  Arrays(Exec& exec, const StateScanBackwardArgs& args, bool tensor_cores)
      : sizes(args.dims, args.xbc.shape.rows(), tensor_cores) {
    StateArrays arrays(exec, StateCall::kScanBackward, args.dims, args.xbc.shape.rows(),
                       args.xbc.dtype);
    for (A** of_steps : {&steps.step, &steps.slope, &steps.log, &steps.to_end, &net}) {
      *of_steps = arrays.template Take<A>(sizes.steps);
    }
    for (TokenSums<A>* of : {&from_start, &of_end, &of_step, &of_d}) {
      *of = {arrays.template Take<A>(sizes.slots * sizes.steps), sizes.slots, sizes.steps};
    }
    for (A** of_states : {&states, &gradients}) {
      *of_states = arrays.template Take<A>(sizes.states);
    }
    for (T** copies : {&starts, &ends}) *copies = arrays.template Take<T>(sizes.states);
    for (T** values : {&scaled, &decayed}) *values = arrays.template Take<T>(sizes.values);
    weights = arrays.template Take<T>(sizes.pairs * args.dims.heads);
    pairs = arrays.template Take<T>(sizes.pairs * args.dims.groups);
    sums = arrays.template Take<A>(sizes.chunks * 3 * args.dims.heads);
  }

  StateScratch sizes;
  StateSteps<A> steps;
  A* net;
  TokenSums<A> from_start, of_end, of_step, of_d;
  A *states, *gradients;
  T *starts, *ends, *scaled, *decayed, *weights, *pairs;
  A* sums;
};

// The states at the start of chunks, and the gradients of those at their ends.
template <typename Product, typename T>
void FindStates(Exec& exec, const StateScanBackwardArgs& args, const StateShape& shape,
                const Arrays<T>& w) {
  using A = Accumulate<T>;
  const T *const xbc = args.xbc.as<T>(), *const dy = args.dy.as<T>();
  FindSteps<T>(exec, args, shape, w.steps);
  Scale(exec, xbc, shape, w.steps, w.scaled);
  ForEachPackOfRows<T>(exec, shape.parts * shape.sequence, shape.inner(),
                       CanPackState<T>(shape, dy, w.decayed),
                       DecayBody<T>{dy, w.steps.log, shape, w.decayed});
  RunOuter<Product>(exec, Outer<T>{xbc + shape.b(0), w.scaled, w.states, shape});
  RunOuter<Product>(exec, Outer<T>{xbc + shape.c(0), w.decayed, w.gradients, shape});
  RunPass(exec, Pass<T>{.states = w.states,
                        .log = w.steps.log,
                        .first = args.start.data == nullptr ? nullptr : args.start.as<A>(),
                        .copies = w.starts,
                        .last = nullptr,
                        .last_row = 0,
                        .shape = shape,
                        .backward = false});
  RunPass(exec, Pass<T>{.states = w.gradients,
                        .log = w.steps.log,
                        .first = nullptr,
                        .copies = w.ends,
                        .last = args.dstart.data == nullptr ? nullptr : args.dstart.as<A>(),
                        .last_row = shape.heads * shape.n * shape.p,
                        .shape = shape,
                        .backward = true});
}

template <typename Product, typename T>
void Run(Exec& exec, const StateScanBackwardArgs& args) {
  using A = Accumulate<T>;
  using Tile = SumTile<A, Product::kTile>;
  const StateShape shape(args, Product::kTile);
  const Arrays<T> w(exec, args, std::is_same_v<Product, TensorProduct>);
  const T *const xbc = args.xbc.as<T>(), *const dy = args.dy.as<T>();
  T* const dxbc = args.dxbc.as<T>();
  FindStates<Product>(exec, args, shape, w);
  Launch(exec,
         {shape.chunks() * shape.groups, Product::kThreads, Product::kShared + 2 * Tile::kBytes},
         PairsKernel<Product, T>, Pairs<T>{xbc, dy, w.steps, w.weights, w.pairs, w.net, shape});
  RunValues<Product, /*kWithin=*/true>(exec, Values<T>{.xbc = xbc,
                                                       .dy = dy,
                                                       .d = args.d.as<A>(),
                                                       .weights = w.weights,
                                                       .ends = w.ends,
                                                       .steps = w.steps,
                                                       .dxbc = dxbc,
                                                       .of_end = w.of_end,
                                                       .of_step = w.of_step,
                                                       .of_d = w.of_d,
                                                       .shape = shape});
  const Grid of_groups = {shape.chunks() * shape.groups * CeilDiv(shape.n, Product::kTile),
                          Product::kThreads, Product::kShared};
  Launch(exec, of_groups, GroupKernel<Product, T, Order::kAlong>,
         GroupGradient<T>{w.pairs, xbc + shape.c(0), w.scaled, w.ends, dxbc + shape.b(0), shape});
  Launch(
      exec, of_groups, GroupKernel<Product, T, Order::kDeep>,
      GroupGradient<T>{w.pairs, xbc + shape.b(0), w.decayed, w.starts, dxbc + shape.c(0), shape});
  Launch(exec,
         {shape.chunks() * shape.heads * w.sizes.slots, Product::kThreads,
          Product::kShared + Tile::kBytes},
         FromStartKernel<Product, T>, FromStart<T>{xbc, w.decayed, w.starts, w.from_start, shape});
  Launch(exec, {shape.chunks() * shape.heads, kFinishThreads}, FinishKernel<T>,
         Finish<T>{.a_log = args.a_log.as<A>(),
                   .steps = w.steps,
                   .net = w.net,
                   .from_start = w.from_start,
                   .of_end = w.of_end,
                   .of_step = w.of_step,
                   .of_d = w.of_d,
                   .starts = w.states,
                   .ends = w.gradients,
                   .ddt = args.ddt.as<T>(),
                   .sums = w.sums,
                   .shape = shape});
  RunAddParameters(exec, w.sums, shape.chunks(),
                   AddParameters<A>{{args.ddt_bias.as<A>(), args.da_log.as<A>(), args.dd.as<A>()},
                                    {args.write_ddt_bias, args.write_da_log, args.write_dd},
                                    shape.heads});
}

}  // namespace

void StateScanBackward(Exec& exec, const StateScanBackwardArgs& args) {
  DispatchFloat(args.xbc.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    WithStateProduct<T>(
        args.dims, [&](auto product) { Run<typename decltype(product)::type, T>(exec, args); },
        args.xbc.data, args.dy.data, args.dxbc.data);
  });
}

}  // namespace trainyard::cuda
