// A task is one sequence and one key/value head with its group of query heads. Its keys and values
// are copied once into f32 (or f64). Queries pass in strips of 32, transposed, over blocks of 64
// keys up to their own: scores then have a key a row, so that softmax needs no sums across a vector
// and every product is TileProduct on contiguous rows. Only the last 32 keys of a strip are masked.
// Bound by multiply-adds: 4 d (forward) and 10 d (backward) FLOPs per score, half of the square.

#include "kernels/attention.h"

#include <cmath>
#include <limits>
#include <utility>

#include "kernels/cpu/attention_softmax.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/tile_product.h"

namespace trainyard::cpu {
namespace {

constexpr int64_t kKeys = 64;  // Of a block.

constexpr int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Where a task's heads lie in the packed rows, and the sizes of its copies.
struct Layout {
  Layout(const AttentionDims& dims, int64_t task)
      : s(dims.sequence),
        d(dims.head_dim),
        group(dims.heads / dims.kv_heads),
        row((dims.heads + 2 * dims.kv_heads) * dims.head_dim),
        out_row(dims.heads * dims.head_dim),
        batch(task / dims.kv_heads),
        kv_head(task % dims.kv_heads),
        heads(dims.heads),
        first_head(kv_head * group),
        first(batch * dims.sequence),
        key(first * row + (dims.heads + kv_head) * d),
        value(first * row + (dims.heads + dims.kv_heads + kv_head) * d),
        padded(RoundUp(d, kTileLanes)),
        scale(dims.scale) {}
  // Offsets of the first row's elements of a query head in qkv, out and lse.
  int64_t query(int64_t head) const { return first * row + head * d; }
  int64_t output(int64_t head) const { return first * out_row + head * d; }
  int64_t statistic(int64_t head) const { return (batch * heads + head) * s; }

  int64_t s, d, group, row, out_row, batch, kv_head, heads, first_head, first;
  int64_t key, value;
  int64_t padded;  // d up to whole vectors
  double scale;
};

// `count` rows of a head within a packed tensor.
template <typename T>
struct Rows {
  const T* data;
  int64_t stride;
  int64_t count;
};

// to[r, c] = scale * from[r, c], each row padded with zeroes to at.padded.
template <typename T, typename A>
void Load(const Rows<T>& from, const Layout& at, A scale, A* to) {
  for (int64_t r = 0; r < from.count; ++r) {
    const T* row = from.data + r * from.stride;
    A* out = to + r * at.padded;
#pragma omp simd
    for (int64_t c = 0; c < at.d; ++c) out[c] = A(row[c]) * scale;
    std::fill(out + at.d, out + at.padded, A(0));
  }
}

// to[c, q] = from[q, c]: the loaded rows of a strip, transposed; zeroes for queries from `count`
// on.
template <typename A>
void Transpose(const A* from, int64_t count, const Layout& at, A* to) {
  if (count < kQueries) std::fill_n(to, at.d * kQueries, A(0));
  for (int64_t c = 0; c < at.d; ++c) {
    for (int64_t q = 0; q < count; ++q) to[c * kQueries + q] = from[q * at.padded + c];
  }
}

template <typename T, typename A>
void Store(const A* from, A scale, int64_t count, const Layout& at, T* to) {
  for (int64_t r = 0; r < count; ++r) {
#pragma omp simd
    for (int64_t c = 0; c < at.d; ++c) to[r * at.row + c] = T(from[r * at.padded + c] * scale);
  }
}

// Hands out the parts of a task's scratch.
template <typename A>
class Parts {
 public:
  explicit Parts(std::byte* data) : next_(reinterpret_cast<A*>(data)) {}
  A* Take(int64_t elements) { return std::exchange(next_, next_ + RoundUp(elements, kTileLanes)); }

 private:
  A* next_;
};

// Queries [i, i + count).
struct Strip {
  int64_t i;
  int64_t count;
};

// Calls body(j, keys) for the blocks of keys that a strip of queries from i on can see.
template <typename Body>
void ForEachBlock(int64_t i, const Layout& at, Body&& body) {
  const int64_t end = std::min(i + kQueries, at.s);
  for (int64_t j = 0; j < end; j += kKeys) body(j, std::min(kKeys, end - j));
}

// products[key, q] = <rows[key], strip[:, q]>
template <typename A>
void Scores(int64_t keys, const Layout& at, const A* rows, const A* strip, A* products) {
  TileProduct({.m = keys,
               .n = kQueries,
               .k = at.d,
               .a = rows,
               .a_row = at.padded,
               .a_column = 1,
               .b = strip,
               .b_row = kQueries,
               .c = products,
               .c_row = kQueries,
               .add = false});
}

// Of a block of scores, what exists.
struct Extent {
  int64_t queries;
  int64_t keys;
};

// sums[q, :] += sum over keys of weights[key, q] rows[key, :]
template <typename A>
void MixKeys(const Extent& extent, const Layout& at, const A* weights, const A* rows, A* sums) {
  TileProduct({.m = extent.queries,
               .n = at.padded,
               .k = extent.keys,
               .a = weights,
               .a_row = 1,
               .a_column = kQueries,
               .b = rows,
               .b_row = at.padded,
               .c = sums,
               .c_row = at.padded,
               .add = true});
}

// sums[key, :] += sum over queries of weights[key, q] rows[q, :]
template <typename A>
void MixQueries(const Extent& extent, const Layout& at, const A* weights, const A* rows, A* sums) {
  TileProduct({.m = extent.keys,
               .n = at.padded,
               .k = extent.queries,
               .a = weights,
               .a_row = kQueries,
               .a_column = 1,
               .b = rows,
               .b_row = at.padded,
               .c = sums,
               .c_row = at.padded,
               .add = true});
}

template <typename A>
struct ForwardScratch {
  ForwardScratch(const Layout& at, std::byte* data) {
    Parts<A> parts(data);
    keys = parts.Take(at.s * at.padded);
    values = parts.Take(at.s * at.padded);
    queries = parts.Take(kQueries * at.padded);
    strip = parts.Take(kQueries * at.padded);
    sums = parts.Take(kQueries * at.padded);
    scores = parts.Take(kQueries * kKeys);
  }
  static size_t Bytes(const Layout& at) {
    return sizeof(A) * size_t(2 * at.s * at.padded + 3 * kQueries * at.padded + kQueries * kKeys);
  }
  A *keys, *values, *queries, *strip, *sums, *scores;
};

// A strip over all keys that it sees; leaves sum_j p v in work.sums.
template <typename A>
void ForwardStrip(const Strip& strip, const Layout& at, const ForwardScratch<A>& work,
                  SoftmaxState<A>& state) {
  std::fill_n(work.sums, kQueries * at.padded, A(0));
  std::fill_n(state.largest, kQueries, -std::numeric_limits<A>::infinity());
  std::fill_n(state.sum, kQueries, A(0));
  ForEachBlock(strip.i, at, [&](int64_t j, int64_t keys) {
    Scores(keys, at, work.keys + j * at.padded, work.strip, work.scores);
    SoftmaxForward({work.scores, keys, strip.i - j}, state);
    for (int64_t q = 0; q < strip.count; ++q) {
      if (state.shrink[q] == A(1) || j == 0) continue;
      A* sums = work.sums + q * at.padded;
#pragma omp simd
      for (int64_t c = 0; c < at.padded; ++c) sums[c] *= state.shrink[q];
    }
    MixKeys({strip.count, keys}, at, work.scores, work.values + j * at.padded, work.sums);
  });
}

template <typename T>
void Forward(const AttentionForwardArgs& args, const Layout& at, std::byte* scratch) {
  using A = Accumulate<T>;
  const ForwardScratch<A> work(at, scratch);
  const T* qkv = args.qkv.as<T>();
  Load(Rows<T>{qkv + at.key, at.row, at.s}, at, A(1), work.keys);
  Load(Rows<T>{qkv + at.value, at.row, at.s}, at, A(1), work.values);
  SoftmaxState<A> state;
  for (int64_t head = at.first_head; head < at.first_head + at.group; ++head) {
    A* lse = args.lse.as<A>() + at.statistic(head);
    for (int64_t i = 0; i < at.s; i += kQueries) {
      const int64_t count = std::min(kQueries, at.s - i);
      Load(Rows<T>{qkv + at.query(head) + i * at.row, at.row, count}, at, A(at.scale),
           work.queries);
      Transpose(work.queries, count, at, work.strip);
      ForwardStrip({i, count}, at, work, state);
      for (int64_t q = 0; q < count; ++q) {
        lse[i + q] = state.largest[q] + std::log(state.sum[q]);
        T* out = args.out.as<T>() + at.output(head) + (i + q) * at.out_row;
        const A* sums = work.sums + q * at.padded;
        const A inverse = A(1) / state.sum[q];
#pragma omp simd
        for (int64_t c = 0; c < at.d; ++c) out[c] = T(sums[c] * inverse);
      }
    }
  }
}

template <typename A>
struct BackwardScratch {
  BackwardScratch(const Layout& at, std::byte* data) {
    Parts<A> parts(data);
    for (A** all : {&keys, &values, &dkeys, &dvalues}) *all = parts.Take(at.s * at.padded);
    for (A** strip : {&queries, &query_strip, &dout, &dout_strip, &dqueries}) {
      *strip = parts.Take(kQueries * at.padded);
    }
    scores = parts.Take(kQueries * kKeys);
    dscores = parts.Take(kQueries * kKeys);
  }
  static size_t Bytes(const Layout& at) {
    return sizeof(A) *
           size_t(4 * at.s * at.padded + 5 * kQueries * at.padded + 2 * kQueries * kKeys);
  }
  A *keys, *values, *dkeys, *dvalues;                       // Of the whole sequence.
  A *queries, *query_strip, *dout, *dout_strip, *dqueries;  // Of a strip; *_strip are transposed.
  A *scores, *dscores;
};

// A strip: adds to dkeys and dvalues, leaves dqueries (before scale).
template <typename A>
void BackwardStrip(const Strip& strip, const Layout& at, const BackwardScratch<A>& work,
                   const A* lse, const A* delta) {
  std::fill_n(work.dqueries, kQueries * at.padded, A(0));
  ForEachBlock(strip.i, at, [&](int64_t j, int64_t keys) {
    const int64_t offset = j * at.padded;
    Scores(keys, at, work.keys + offset, work.query_strip, work.scores);
    Scores(keys, at, work.values + offset, work.dout_strip, work.dscores);
    SoftmaxBackward({work.scores, keys, strip.i - j}, work.dscores, lse, delta);
    MixKeys({strip.count, keys}, at, work.dscores, work.keys + offset, work.dqueries);
    MixQueries({strip.count, keys}, at, work.scores, work.dout, work.dvalues + offset);
    // Queries carry the scale, so these are the gradients of the keys themselves.
    MixQueries({strip.count, keys}, at, work.dscores, work.queries, work.dkeys + offset);
  });
}

template <typename T>
void Backward(const AttentionBackwardArgs& args, const Layout& at, std::byte* scratch) {
  using A = Accumulate<T>;
  const BackwardScratch<A> work(at, scratch);
  const T* qkv = args.qkv.as<T>();
  T* dqkv = args.dqkv.as<T>();
  Load(Rows<T>{qkv + at.key, at.row, at.s}, at, A(1), work.keys);
  Load(Rows<T>{qkv + at.value, at.row, at.s}, at, A(1), work.values);
  std::fill_n(work.dkeys, at.s * at.padded, A(0));
  std::fill_n(work.dvalues, at.s * at.padded, A(0));
  for (int64_t head = at.first_head; head < at.first_head + at.group; ++head) {
    for (int64_t i = 0; i < at.s; i += kQueries) {
      const int64_t count = std::min(kQueries, at.s - i);
      const T* dout = args.dout.as<T>() + at.output(head) + i * at.out_row;
      const T* out = args.out.as<T>() + at.output(head) + i * at.out_row;
      Load(Rows<T>{qkv + at.query(head) + i * at.row, at.row, count}, at, A(at.scale),
           work.queries);
      Transpose(work.queries, count, at, work.query_strip);
      Load(Rows<T>{dout, at.out_row, count}, at, A(1), work.dout);
      Transpose(work.dout, count, at, work.dout_strip);
      alignas(64) A lse[kQueries] = {}, delta[kQueries] = {};
      std::copy_n(args.lse.as<A>() + at.statistic(head) + i, count, lse);
      for (int64_t q = 0; q < count; ++q) {
        A sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < at.d; ++c) {
          sum += work.dout[q * at.padded + c] * A(out[q * at.out_row + c]);
        }
        delta[q] = sum;
      }
      BackwardStrip({i, count}, at, work, lse, delta);
      Store(work.dqueries, A(at.scale), count, at, dqkv + at.query(head) + i * at.row);
    }
  }
  Store(work.dkeys, A(1), at.s, at, dqkv + at.key);
  Store(work.dvalues, A(1), at.s, at, dqkv + at.value);
}

template <typename Body>
void ForEachTask(Exec& exec, const AttentionDims& dims, int64_t rows, size_t bytes, Body&& body) {
  Context& context = ContextOf(exec);
  ParallelTasks(exec, rows / dims.sequence * dims.kv_heads, [&](int64_t task, int thread) {
    body(Layout(dims, task), context.scratch[thread].Reserve(bytes));
  });
}

}  // namespace

void AttentionForward(Exec& exec, const AttentionForwardArgs& args) {
  DispatchFloat(args.qkv.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const size_t bytes = ForwardScratch<Accumulate<T>>::Bytes(Layout(args.dims, 0));
    ForEachTask(exec, args.dims, args.qkv.shape.rows(), bytes,
                [&](const Layout& at, std::byte* scratch) { Forward<T>(args, at, scratch); });
  });
}

void AttentionBackward(Exec& exec, const AttentionBackwardArgs& args) {
  DispatchFloat(args.qkv.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const size_t bytes = BackwardScratch<Accumulate<T>>::Bytes(Layout(args.dims, 0));
    ForEachTask(exec, args.dims, args.qkv.shape.rows(), bytes,
                [&](const Layout& at, std::byte* scratch) { Backward<T>(args, at, scratch); });
  });
}

}  // namespace trainyard::cpu
