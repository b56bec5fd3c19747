// What the kernels of state_scan.cu, state_scan_backward.cu and state_ends.cu share. A part is
// divided into chunks of as many tokens as a tile of a product has lines (Product::kTile), so that
// what pairs of a chunk's tokens have in common is one tile. Intermediate results pass through
// scratch memory. Products of bf16 are computed on the tensor cores (tensor_product.h) if P and N
// are multiples of 8, and all other products by plain sums (plain_product.h).
//
// The letters are those of state_scan.h. `scaled` is x step exp(c_end - c), which adds to the
// chunk's state at its end.

#pragma once

#include <cmath>
#include <type_traits>

#include "kernels/cuda/context.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/math.h"
#include "kernels/cuda/products/plain_product.h"
#include "kernels/cuda/products/tensor_product.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/row.h"
#include "kernels/cuda/rows.h"
#include "kernels/state_space/state_scan.h"
#include "kernels/state_space/state_scratch.h"

namespace trainyard::cuda {

// The sizes, and the places of operands.
struct StateShape {
  int64_t heads, groups, p, n, sequence, parts, chunk;
  unsigned part_chunks;  // In each part.
  DocumentBorders documents;

  template <typename Args>
  StateShape(const Args& args, int64_t chunk_)
      : heads(args.dims.heads),
        groups(args.dims.groups),
        p(args.dims.head_dim),
        n(args.dims.state),
        sequence(args.dims.sequence),
        parts(args.xbc.shape.rows() / args.dims.sequence),
        chunk(chunk_),
        part_chunks(unsigned((args.dims.sequence + chunk_ - 1) / chunk_)),
        documents(BordersOf(args.document_positions)) {}

  __host__ __device__ int64_t group_heads() const { return heads / groups; }
  __host__ __device__ int64_t inner() const { return heads * p; }
  __host__ __device__ int64_t group_columns() const { return group_heads() * p; }
  __host__ __device__ int64_t columns() const { return inner() + 2 * groups * n; }
  __host__ __device__ int64_t chunks() const { return parts * part_chunks; }
  __host__ __device__ int64_t b(int64_t group) const { return inner() + group * n; }
  __host__ __device__ int64_t c(int64_t group) const { return b(group) + groups * n; }
  // A chunk's first row of all tokens, and its number of tokens.
  __device__ int64_t Row(int64_t k) const {
    return int64_t(unsigned(k) / part_chunks) * sequence + InPart(k);
  }
  __device__ int Count(int64_t k) const {
    const int64_t left = sequence - InPart(k);
    return int(left < chunk ? left : chunk);
  }
  // The place in the part where the document of the part's last token begins; negative: before.
  __device__ int64_t LastBegin(int64_t part) const {
    return documents.BeginOf(part * sequence, sequence - 1);
  }
  // exp(c) of token t of the chunk that begins with `row`, and 0 if a document begins in between.
  template <typename A>
  __device__ A FromStart(const A* log, int64_t row, int64_t t, int64_t head) const {
    return documents.BeginOf(row, t) < 0 ? std::exp(log[(row + t) * heads + head]) : A(0);
  }
  // The first token of a chunk that token t sees, and `none` for tokens beyond the chunk.
  __device__ int FirstSeen(int64_t row, int t, int count, int none) const {
    if (t >= count) return none;
    const int64_t begin = documents.BeginOf(row, t);
    return begin < 0 ? 0 : int(begin);
  }
  // The first element of a group in the copies of states [chunks or parts, G, N, (H/G) P].
  __device__ int64_t Copy(int64_t k, int64_t group) const {
    return (k * groups + group) * n * group_columns();
  }

 private:
  __device__ int64_t InPart(int64_t k) const { return unsigned(k) % part_chunks * chunk; }
};

// The numbers of tokens and heads, [T, H].
template <typename A>
struct StateSteps {
  A* step;
  A* slope;   // The derivative of the step by dt; may be null.
  A* log;     // c: sums of a over the chunk.
  A* to_end;  // exp(c_end - c), and 0 if a document begins between the token and the end.
};

// Takes arrays from scratch memory.
class StateArrays {
 public:
  StateArrays(Exec& exec, StateCall call, const StateDims& dims, int64_t tokens, DType dtype)
      : bytes_(StateScratchBytes(call, dims, tokens, dtype)),
        begin_(Scratch(exec, size_t(MostBytes(dims, tokens, dtype)))),
        next_(begin_) {}
  template <typename T>
  T* Take(int64_t elements) {
    T* const array = reinterpret_cast<T*>(next_);
    next_ += CeilDiv(elements * int64_t(sizeof(T)), 256) * 256;
    CHECK(next_ - begin_ <= bytes_) << "state_scan: scratch memory of " << bytes_ << " bytes";
    return array;
  }

 private:
  // Of all calls. Scratch memory that grew from one call to the next would leave the smaller block
  // behind, beside what the plan of a step's memory counts.
  static int64_t MostBytes(const StateDims& dims, int64_t tokens, DType dtype) {
    int64_t most = 0;
    for (const StateCall call :
         {StateCall::kScan, StateCall::kScanBackward, StateCall::kEnds, StateCall::kEndsBackward}) {
      most = std::max(most, StateScratchBytes(call, dims, tokens, dtype));
    }
    return most;
  }

  int64_t bytes_;
  std::byte* begin_;
  std::byte* next_;
};

template <typename T>
struct StepsBody {
  using A = Accumulate<T>;
  const T* dt;
  const A* dt_bias;
  const A* a_log;
  StateShape shape;
  A least, most;
  StateSteps<A> out;

  __device__ void operator()(int64_t i) const {
    const int64_t k = i / shape.heads, head = i % shape.heads, count = shape.Count(k);
    const int64_t first = shape.Row(k) * shape.heads + head;
    const A bias = dt_bias[head], decay = -std::exp(a_log[head]);
    A sum = 0;
    for (int64_t t = 0; t < count; ++t) {
      const int64_t at = first + t * shape.heads;
      const A raw = A(dt[at]) + bias;
      const A soft = (raw > 0 ? raw : A(0)) + std::log1p(std::exp(raw > 0 ? -raw : raw));
      const A step = soft < least ? least : soft > most ? most : soft;
      sum += decay * step;
      out.step[at] = step;
      out.log[at] = sum;
      if (out.slope != nullptr) out.slope[at] = step == soft ? Sigmoid(raw) : A(0);
    }
    // Tokens before this one belong to documents that end in the chunk.
    const int64_t last_begin = shape.documents.BeginOf(shape.Row(k), count - 1);
    int64_t t = 0;
    for (; t < last_begin; ++t) out.to_end[first + t * shape.heads] = 0;
    for (; t < count; ++t) {
      const int64_t at = first + t * shape.heads;
      out.to_end[at] = std::exp(sum - out.log[at]);
    }
  }
};

template <typename T, typename Args>
void FindSteps(Exec& exec, const Args& args, const StateShape& shape,
               const StateSteps<Accumulate<T>>& out) {
  using A = Accumulate<T>;
  ForEach(exec, shape.chunks() * shape.heads,
          StepsBody<T>{.dt = args.dt.template as<T>(),
                       .dt_bias = args.dt_bias.template as<A>(),
                       .a_log = args.a_log.template as<A>(),
                       .shape = shape,
                       .least = A(args.dims.min_step),
                       .most = A(args.dims.max_step),
                       .out = out});
}

// scaled = x step to_end, for rows of x that are `stride` apart.
template <typename T>
struct ScaleBody {
  using A = Accumulate<T>;
  const T* x;
  int64_t stride, heads, p;
  StateSteps<A> steps;
  T* scaled;

  template <int kCount>
  __device__ void operator()(int64_t row, int64_t column) const {
    const auto xs = LoadPack<T, kCount>(x + row * stride + column);
    const int64_t at = row * heads + column / p;
    const A factor = steps.step[at] * steps.to_end[at];
    Pack<T, kCount> y;
    for (int i = 0; i < kCount; ++i) y.v[i] = T(A(xs.v[i]) * factor);
    StoreRow(scaled + row * heads * p + column, y);
  }
};

// Whether packs of T lie within one head, at aligned addresses.
template <typename T, typename... Pointers>
bool CanPackState(const StateShape& shape, const Pointers*... pointers) {
  return CanPack<T>(shape.p, pointers...) && CanPack<T>(shape.n);
}

template <typename T>
void Scale(Exec& exec, const T* xbc, const StateShape& shape,
           const StateSteps<Accumulate<T>>& steps, T* scaled) {
  ForEachPackOfRows<T>(exec, shape.parts * shape.sequence, shape.inner(),
                       CanPackState<T>(shape, xbc, scaled),
                       ScaleBody<T>{xbc, shape.columns(), shape.heads, shape.p, steps, scaled});
}

// The products of rows of B or C with rows of values, summed over a chunk:
//   states[k, h, n, p] = sum_t left[t, n] right[t, (h, p)]
template <typename T>
struct Outer {
  const T* left;   // Column 0 of group 0; rows are shape.columns() apart.
  const T* right;  // [T, H P]
  Accumulate<T>* states;
  StateShape shape;
};

template <typename Product, typename T>
__global__ void __launch_bounds__(Product::kThreads, Product::kBlocks) OuterKernel(Outer<T> args) {
  constexpr int kTile = Product::kTile, kNeighbours = Product::kNeighbours;
  const StateShape& s = args.shape;
  const int64_t across = CeilDiv(s.group_columns(), kTile), down = CeilDiv(s.n, kTile);
  const int64_t column = blockIdx.x % across * kTile, line = blockIdx.x / across % down * kTile;
  const int64_t group = blockIdx.x / (across * down) % s.groups;
  const int64_t k = blockIdx.x / (across * down) / s.groups, row = s.Row(k);
  const Panel<T, Order::kAlong> a = {args.left + row * s.columns() + group * s.n + line,
                                     s.columns(), s.n - line};
  const Panel<T, Order::kAlong> b = {
      args.right + row * s.inner() + group * s.group_columns() + column, s.inner(),
      s.group_columns() - column};
  Accumulate<T>* const to = args.states + (k * s.heads + group * s.group_heads()) * s.n * s.p;
  Product(a, b, s.Count(k), DynamicShared<std::byte>()).ForEachSum([&](int r, int c, auto sums) {
    if (r >= a.lines || c >= b.lines) return;
    const int64_t head = (column + c) / s.p, p = (column + c) % s.p;
    if constexpr (kNeighbours == 2) {
      StorePack(to + (head * s.n + line + r) * s.p + p, sums);
    } else {
      to[(head * s.n + line + r) * s.p + p] = sums.v[0];
    }
  });
}

template <typename Product, typename T>
void RunOuter(Exec& exec, const Outer<T>& args) {
  const StateShape& s = args.shape;
  const int64_t tiles =
      CeilDiv(s.group_columns(), Product::kTile) * CeilDiv(s.n, Product::kTile) * s.groups;
  Launch(exec, {s.chunks() * tiles, Product::kThreads, Product::kShared}, OuterKernel<Product, T>,
         args);
}

// Passes states from chunk to chunk, forward, or gradients of states backward. Replaces what each
// chunk adds by what reaches the chunk, and makes a copy of it for products.
template <typename T>
struct Pass {
  using A = Accumulate<T>;
  A* states;       // [chunks, H N P]
  const A* log;    // [T, H]
  const A* first;  // [M, H N P], with which a part begins; null: zeros
  T* copies;       // [chunks, G, N, (H/G) P]; may be null
  A* last;         // Of parts, `last_row` apart: what leaves the part; may be null
  int64_t last_row;
  StateShape shape;
  bool backward;

  template <int kCount>
  __device__ void operator()(int64_t i) const {
    const StateShape& s = shape;
    const int64_t elements = s.heads * s.n * s.p, part = i / elements, e = i % elements;
    const int64_t head = e / (s.n * s.p), n = e / s.p % s.n, p = e % s.p;
    const int64_t in_group = head % s.group_heads() * s.p + p;
    Pack<A, kCount> run = {};
    if (first != nullptr) run = LoadPack<A, kCount>(first + part * elements + e);
    T* copy = nullptr;  // Of the part's first chunk.
    if (copies != nullptr) {
      copy = copies + s.Copy(part * s.part_chunks, head / s.group_heads()) + n * s.group_columns() +
             in_group;
    }
    for (unsigned j = 0; j < s.part_chunks; ++j) {
      const int64_t in_part = backward ? s.part_chunks - 1 - j : j;
      const int64_t begin = in_part * s.chunk, left = s.sequence - begin;
      const int64_t last = (left < s.chunk ? left : s.chunk) - 1;
      A* const at = states + (part * s.part_chunks + in_part) * elements + e;
      const auto added = LoadPack<A, kCount>(at);
      const A whole = s.FromStart(log, part * s.sequence + begin, last, head);
      StorePack(at, run);
      if (copy != nullptr) {
        Pack<T, kCount> rounded;
        for (int m = 0; m < kCount; ++m) rounded.v[m] = T(run.v[m]);
        StoreRow(copy + in_part * elements, rounded);
      }
      for (int m = 0; m < kCount; ++m) run.v[m] = whole * run.v[m] + added.v[m];
    }
    if (last != nullptr) StorePack(last + part * last_row + e, run);
  }
};

template <typename T>
void RunPass(Exec& exec, const Pass<T>& pass) {
  const StateShape& s = pass.shape;
  const bool packed = CanPackState<T>(s, pass.states, pass.first, pass.copies, pass.last) &&
                      CanPack<Accumulate<T>>(pass.last_row);
  ForEachPack<T>(exec, s.parts * s.heads * s.n * s.p, packed, pass);
}

// Calls f with the product class for operands of T with these dims and addresses.
template <typename T, typename F, typename... Pointers>
void WithStateProduct(const StateDims& dims, const F& f, const Pointers*... pointers) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (CanPack<T>(dims.head_dim, pointers...) && dims.state % kPackOf<T> == 0) {
      return f(std::type_identity<TensorProduct>());
    }
  }
  f(std::type_identity<PlainProduct<T>>());
}

// Stores neighbours of a row, rounded.
template <typename T, typename A, int kCount>
__device__ void StoreRounded(T* to, const Pack<A, kCount>& sums) {
  Pack<T, kCount> rounded;
  for (int i = 0; i < kCount; ++i) rounded.v[i] = T(sums.v[i]);
  StoreRow(to, rounded);
}

}  // namespace trainyard::cuda
