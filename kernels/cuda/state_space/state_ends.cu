// See state_chunk.h for the parts, and kernels/cpu/state_space/state_ends.cc for the formulas.
// Bound by memory.

#include <limits>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/state_space/state_backward.h"
#include "kernels/state_space/state_ends.h"

namespace trainyard::cuda {
namespace {

// Finds the log of a head's decay after each chunk of a part, and of the part's whole decay.
template <typename A>
struct AfterBody {
  const A* log;
  StateShape shape;
  A* after;  // [chunks, H]; may be null
  A* whole;  // Of parts, `row` apart; may be null. Minus infinity if a document begins in the part.
  int64_t row;

  __device__ void operator()(int64_t i) const {
    const int64_t part = i / shape.heads, head = i % shape.heads, count = shape.part_chunks;
    A sum = 0;
    for (int64_t k = (part + 1) * count - 1; k >= part * count; --k) {
      if (after != nullptr) after[k * shape.heads + head] = sum;
      sum += log[(shape.Row(k) + shape.Count(k) - 1) * shape.heads + head];
    }
    if (whole == nullptr) return;
    constexpr A kNothing = -std::numeric_limits<A>::infinity();
    whole[part * row + head] = shape.LastBegin(part) < 0 ? sum : kNothing;
  }
};

template <typename Product, typename T>
void RunForward(Exec& exec, const StateEndsForwardArgs& args) {
  using A = Accumulate<T>;
  const int64_t tokens = args.xbc.shape.rows(), row = args.ends.shape.back();
  const StateScratch sizes(args.dims, tokens, std::is_same_v<Product, TensorProduct>);
  const StateShape shape(args, Product::kTile);
  StateArrays arrays(exec, StateCall::kEnds, args.dims, tokens, args.xbc.dtype);
  const StateSteps<A> steps = {.step = arrays.Take<A>(sizes.steps),
                               .slope = nullptr,
                               .log = arrays.Take<A>(sizes.steps),
                               .to_end = arrays.Take<A>(sizes.steps)};
  T* const scaled = arrays.Take<T>(sizes.values);
  A* const states = arrays.Take<A>(sizes.states);
  A* const ends = args.ends.as<A>();
  FindSteps<T>(exec, args, shape, steps);
  Scale(exec, args.xbc.as<T>(), shape, steps, scaled);
  RunOuter<Product>(exec, Outer<T>{args.xbc.as<T>() + shape.b(0), scaled, states, shape});
  RunPass(exec, Pass<T>{.states = states,
                        .log = steps.log,
                        .first = nullptr,
                        .copies = nullptr,
                        .last = ends,
                        .last_row = row,
                        .shape = shape,
                        .backward = false});
  ForEach(exec, shape.parts * shape.heads,
          AfterBody<A>{steps.log, shape, nullptr, ends + args.dims.state_columns(), row});
}

// to_end becomes the decay to the end of the part, and 0 before the part's last document.
template <typename A>
struct ToPartEndBody {
  StateShape shape;
  const A* after;
  A* to_end;
  __device__ void operator()(int64_t i) const {
    const int64_t row = i / shape.heads, in_part = row % shape.sequence;
    const int64_t k = row / shape.sequence * shape.part_chunks + in_part / shape.chunk;
    const bool ends_before = in_part < shape.LastBegin(row / shape.sequence);
    to_end[i] = ends_before ? A(0) : to_end[i] * std::exp(after[k * shape.heads + i % shape.heads]);
  }
};

// The copies of a part's gradient of the state, in the order of operands.
template <typename T>
struct CopyBody {
  const Accumulate<T>* dends;
  int64_t row;
  StateShape shape;
  T* copies;  // [M, G, N, (H/G) P]
  __device__ void operator()(int64_t i) const {
    const StateShape& s = shape;
    const int64_t elements = s.heads * s.n * s.p, part = i / elements, e = i % elements;
    const int64_t head = e / (s.n * s.p), n = e / s.p % s.n;
    const int64_t column = head % s.group_heads() * s.p + e % s.p;
    copies[s.Copy(part, head / s.group_heads()) + n * s.group_columns() + column] =
        T(dends[part * row + e]);
  }
};

// dB, which comes from the end alone, and zeros for dC.
template <typename T>
struct OfEnd {
  const T* scaled;
  const T* copies;
  T* dxbc;
  StateShape shape;
};

template <typename Product, typename T>
__global__ void __launch_bounds__(Product::kThreads, Product::kBlocks) OfEndKernel(OfEnd<T> args) {
  constexpr int kTile = Product::kTile, kNeighbours = Product::kNeighbours;
  const StateShape& s = args.shape;
  const int64_t across = CeilDiv(s.n, kTile), column = blockIdx.x % across * kTile;
  const int64_t group = blockIdx.x / across % s.groups, k = blockIdx.x / across / s.groups;
  const int64_t row = s.Row(k);
  const int count = s.Count(k);
  const Panel<T, Order::kDeep> values = {args.scaled + row * s.inner() + group * s.group_columns(),
                                         s.inner(), count};
  const Panel<T, Order::kDeep> copies = {
      args.copies + s.Copy(k / s.part_chunks, group) + column * s.group_columns(),
      s.group_columns(), s.n - column};
  T* const to = args.dxbc + row * s.columns() + column;
  Product(values, copies, s.group_columns(), DynamicShared<std::byte>())
      .ForEachSum([&](int t, int n, auto sum) {
        if (t >= count || column + n >= s.n) return;
        StoreRounded(to + t * s.columns() + s.b(group) + n, sum);
        for (int i = 0; i < kNeighbours; ++i) sum.v[i] = 0;
        StoreRounded(to + t * s.columns() + s.c(group) + n, sum);
      });
}

// Makes the gradients of the steps: the sums of `of_end` over the part's earlier tokens are those
// of the decays.
template <typename T>
struct FinishEnds {
  using A = Accumulate<T>;
  const A* a_log;
  StateSteps<A> steps;
  TokenSums<A> of_end, of_step;
  const A* dwhole;  // Of parts, `row` apart.
  int64_t row;
  T* ddt;
  A* sums;  // [M, 3 H]
  StateShape shape;
};

constexpr int kFinishThreads = 256;

// A block has all tokens of a head of a part.
template <typename T>
__global__ void __launch_bounds__(kFinishThreads) FinishKernel(FinishEnds<T> args) {
  using A = Accumulate<T>;
  const StateShape& s = args.shape;
  const int64_t head = blockIdx.x % s.heads, part = blockIdx.x / s.heads;
  const A decay = -std::exp(args.a_log[head]);
  A earlier = s.LastBegin(part) < 0 ? args.dwhole[part * args.row + head] : A(0);
  A sums[2] = {};
  for (int64_t first = 0; first < s.sequence; first += kFinishThreads) {
    const int64_t t = first + threadIdx.x, at = (part * s.sequence + t) * s.heads + head;
    const A own = t < s.sequence ? args.of_end(at) : A(0);
    A total;
    const A gradient = earlier + (BlockScan(own, &total) - own);
    earlier += total;
    if (t >= s.sequence) continue;
    const A d = (args.of_step(at) + decay * gradient) * args.steps.slope[at];
    args.ddt[at] = T(d);
    sums[0] += d;
    sums[1] += gradient * decay * args.steps.step[at];
  }
  BlockSums(sums);
  if (threadIdx.x == 0) {
    for (int i = 0; i < 3; ++i) {
      args.sums[(part * 3 + i) * s.heads + head] = i < 2 ? sums[i] : A(0);
    }
  }
}

template <typename Product, typename T>
void RunBackward(Exec& exec, const StateEndsBackwardArgs& args) {
  using A = Accumulate<T>;
  const int64_t tokens = args.xbc.shape.rows(), row = args.dends.shape.back();
  const StateScratch sizes(args.dims, tokens, std::is_same_v<Product, TensorProduct>);
  const StateShape shape(args, Product::kTile);
  StateArrays arrays(exec, StateCall::kEndsBackward, args.dims, tokens, args.xbc.dtype);
  StateSteps<A> steps;
  for (A** of_steps : {&steps.step, &steps.slope, &steps.log, &steps.to_end}) {
    *of_steps = arrays.Take<A>(sizes.steps);
  }
  TokenSums<A> of_end, of_step;
  for (TokenSums<A>* of : {&of_end, &of_step}) {
    *of = {arrays.Take<A>(sizes.slots * sizes.steps), sizes.slots, sizes.steps};
  }
  A* const after = arrays.Take<A>(sizes.chunks * shape.heads);
  A* const sums = arrays.Take<A>(shape.parts * 3 * shape.heads);
  T* const scaled = arrays.Take<T>(sizes.values);
  const int64_t ends = shape.parts * args.dims.state_columns();
  T* const copies = arrays.Take<T>(ends);
  const A* const dends = args.dends.as<A>();
  const T* const xbc = args.xbc.as<T>();

  FindSteps<T>(exec, args, shape, steps);
  ForEach(exec, shape.parts * shape.heads, AfterBody<A>{steps.log, shape, after, nullptr, 0});
  ForEach(exec, sizes.steps, ToPartEndBody<A>{shape, after, steps.to_end});
  ForEach(exec, ends, CopyBody<T>{dends, row, shape, copies});
  Scale(exec, xbc, shape, steps, scaled);
  RunValues<Product, /*kWithin=*/false>(exec, Values<T>{.xbc = xbc,
                                                        .dy = nullptr,
                                                        .d = nullptr,
                                                        .weights = nullptr,
                                                        .ends = copies,
                                                        .steps = steps,
                                                        .dxbc = args.dxbc.as<T>(),
                                                        .of_end = of_end,
                                                        .of_step = of_step,
                                                        .of_d = {},
                                                        .shape = shape});
  Launch(exec,
         {shape.chunks() * shape.groups * CeilDiv(shape.n, Product::kTile), Product::kThreads,
          Product::kShared},
         OfEndKernel<Product, T>, OfEnd<T>{scaled, copies, args.dxbc.as<T>(), shape});
  Launch(exec, {shape.parts * shape.heads, kFinishThreads}, FinishKernel<T>,
         FinishEnds<T>{.a_log = args.a_log.as<A>(),
                       .steps = steps,
                       .of_end = of_end,
                       .of_step = of_step,
                       .dwhole = dends + args.dims.state_columns(),
                       .row = row,
                       .ddt = args.ddt.as<T>(),
                       .sums = sums,
                       .shape = shape});
  RunAddParameters(exec, sums, shape.parts,
                   AddParameters<A>{{args.ddt_bias.as<A>(), args.da_log.as<A>(), nullptr},
                                    {args.write_ddt_bias, args.write_da_log, Write::kOverwrite},
                                    shape.heads});
}

}  // namespace

void StateEndsForward(Exec& exec, const StateEndsForwardArgs& args) {
  DispatchFloat(args.xbc.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    WithStateProduct<T>(
        args.dims,
        [&](auto product) { RunForward<typename decltype(product)::type, T>(exec, args); },
        args.xbc.data);
  });
}

void StateEndsBackward(Exec& exec, const StateEndsBackwardArgs& args) {
  DispatchFloat(args.xbc.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    WithStateProduct<T>(
        args.dims,
        [&](auto product) { RunBackward<typename decltype(product)::type, T>(exec, args); },
        args.xbc.data, args.dxbc.data);
  });
}

}  // namespace trainyard::cuda
