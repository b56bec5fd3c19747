// A task is one sequence and one key/value head with its group of query heads. Its keys and values
// are copied once into f32 (or f64), keys also transposed in tiles, so that every product is
// TileProduct on contiguous rows. Queries pass in tiles of 64 over the tiles of keys up to their
// own; in the tile on the diagonal each strip of 16 rows stops at its last legal column.
// Bound by multiply-adds: 4 (forward) and 10 (backward) d FLOPs per score, half of the square.

#include "kernels/attention.h"

#include <cmath>
#include <limits>
#include <utility>

#include "kernels/cpu/attention_rows.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/tile_product.h"

namespace trainyard::cpu {
namespace {

constexpr int64_t kTile = 64, kStrip = kTileLanes;

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
        rows(RoundUp(s, kTile)),
        scale(dims.scale) {}
  // Offsets of the first row's elements of a query head in qkv, out and lse.
  int64_t query(int64_t head) const { return first * row + head * d; }
  int64_t output(int64_t head) const { return first * out_row + head * d; }
  int64_t statistic(int64_t head) const { return (batch * heads + head) * s; }

  int64_t s, d, group, row, out_row, batch, kv_head, heads, first_head, first;
  int64_t key, value;
  int64_t padded;  // d up to whole vectors
  int64_t rows;    // s up to whole tiles
  double scale;
};

// to[r, c] = scale * from[r, c], [count, d] padded with zeroes to [count, padded].
template <typename T, typename A>
void Load(const T* from, int64_t stride, int64_t count, const Layout& at, A scale, A* to) {
  for (int64_t r = 0; r < count; ++r) {
    const T* row = from + r * stride;
    A* out = to + r * at.padded;
#pragma omp simd
    for (int64_t c = 0; c < at.d; ++c) out[c] = A(row[c]) * scale;
    std::fill(out + at.d, out + at.padded, A(0));
  }
}

// Tiles [s/64][d][64] of the transposed rows, zeroes for rows from s on.
template <typename T, typename A>
void LoadTransposed(const T* from, int64_t stride, const Layout& at, A* to) {
  for (int64_t tile = 0; tile < at.rows; tile += kTile) {
    A* out = to + tile * at.d;
    const int64_t count = std::min(kTile, at.s - tile);
    if (count < kTile) std::fill_n(out, at.d * kTile, A(0));
    for (int64_t r = 0; r < count; ++r) {
      const T* row = from + (tile + r) * stride;
      for (int64_t c = 0; c < at.d; ++c) out[c * kTile + r] = A(row[c]);
    }
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

// A strip of query rows against a tile of keys: rows r0 .. r0+count of the tile.
struct Strip {
  int64_t r0, count;
  int64_t columns;  // Scores computed; beyond the last legal one on the diagonal they become 0.
  bool diagonal;
  int64_t valid(int64_t r) const { return diagonal ? r + 1 : kTile; }
};

template <typename Body>
void ForEachStrip(int64_t count, bool diagonal, Body&& body) {
  for (int64_t r0 = 0; r0 < count; r0 += kStrip) {
    body(Strip{r0, std::min(kStrip, count - r0), diagonal ? r0 + kStrip : kTile, diagonal});
  }
}

// scores[strip] = queries . keys^T for the strip's columns.
template <typename A>
void Scores(const Strip& strip, const Layout& at, const A* queries, const A* keys_transposed,
            A* scores) {
  TileProduct({.m = strip.count,
               .n = strip.columns,
               .k = at.d,
               .a = queries + strip.r0 * at.padded,
               .a_row = at.padded,
               .a_column = 1,
               .b = keys_transposed,
               .b_row = kTile,
               .c = scores + strip.r0 * kTile,
               .c_row = kTile,
               .add = false});
}

// sums[strip] += weights . rows, for rows of keys or values.
template <typename A>
void Mix(const Strip& strip, const Layout& at, const A* weights, const A* rows, A* sums) {
  TileProduct({.m = strip.count,
               .n = at.padded,
               .k = strip.columns,
               .a = weights + strip.r0 * kTile,
               .a_row = kTile,
               .a_column = 1,
               .b = rows,
               .b_row = at.padded,
               .c = sums + strip.r0 * at.padded,
               .c_row = at.padded,
               .add = true});
}

// sums += weights^T . rows: from `count` query rows back to the keys or values of a tile.
template <typename A>
void MixTransposed(int64_t count, bool diagonal, const Layout& at, const A* weights, const A* rows,
                   A* sums) {
  for (int64_t j = 0; j < kTile; j += kStrip) {
    const int64_t from = diagonal ? j : 0;  // Query rows above the diagonal have weight 0.
    if (from >= count) break;
    TileProduct({.m = kStrip,
                 .n = at.padded,
                 .k = count - from,
                 .a = weights + from * kTile + j,
                 .a_row = 1,
                 .a_column = kTile,
                 .b = rows + from * at.padded,
                 .b_row = at.padded,
                 .c = sums + j * at.padded,
                 .c_row = at.padded,
                 .add = true});
  }
}

template <typename A>
struct ForwardScratch {
  ForwardScratch(const Layout& at, std::byte* data) {
    Parts<A> parts(data);
    keys_transposed = parts.Take(at.rows * at.d);
    values = parts.Take(at.rows * at.padded);
    queries = parts.Take(kTile * at.padded);
    sums = parts.Take(kTile * at.padded);
    scores = parts.Take(kTile * kTile);
  }
  static size_t Bytes(const Layout& at) {
    return sizeof(A) * size_t(at.rows * (at.d + at.padded) + kTile * (2 * at.padded + kTile));
  }
  A *keys_transposed, *values, *queries, *sums, *scores;
};

// One tile of queries of one head over all keys up to it; leaves sum_j p v in work.sums.
template <typename A>
void ForwardTile(int64_t i, int64_t count, const Layout& at, const ForwardScratch<A>& work,
                 SoftmaxState<A>* states) {
  std::fill_n(work.sums, kTile * at.padded, A(0));
  std::fill_n(states, kTile, SoftmaxState<A>{-std::numeric_limits<A>::infinity(), 0});
  for (int64_t j = 0; j <= i; j += kTile) {
    ForEachStrip(count, j == i, [&](const Strip& strip) {
      Scores(strip, at, work.queries, work.keys_transposed + j * at.d, work.scores);
      for (int64_t r = strip.r0; r < strip.r0 + strip.count; ++r) {
        const A shrink =
            SoftmaxRow(work.scores + r * kTile, strip.valid(r), strip.columns, states[r]);
        if (j == 0 || shrink == A(1)) continue;
        A* sums = work.sums + r * at.padded;
#pragma omp simd
        for (int64_t c = 0; c < at.padded; ++c) sums[c] *= shrink;
      }
      Mix(strip, at, work.scores, work.values + j * at.padded, work.sums);
    });
  }
}

template <typename T>
void Forward(const AttentionForwardArgs& args, const Layout& at, std::byte* scratch) {
  using A = Accumulate<T>;
  const ForwardScratch<A> work(at, scratch);
  const T* qkv = args.qkv.as<T>();
  LoadTransposed(qkv + at.key, at.row, at, work.keys_transposed);
  Load(qkv + at.value, at.row, at.s, at, A(1), work.values);
  std::fill_n(work.values + at.s * at.padded, (at.rows - at.s) * at.padded, A(0));
  SoftmaxState<A> states[kTile];
  for (int64_t head = at.first_head; head < at.first_head + at.group; ++head) {
    A* lse = args.lse.as<A>() + at.statistic(head);
    for (int64_t i = 0; i < at.s; i += kTile) {
      const int64_t count = std::min(kTile, at.s - i);
      Load(qkv + at.query(head) + i * at.row, at.row, count, at, A(at.scale), work.queries);
      ForwardTile(i, count, at, work, states);
      for (int64_t r = 0; r < count; ++r) {
        lse[i + r] = states[r].largest + std::log(states[r].sum);
        T* out = args.out.as<T>() + at.output(head) + (i + r) * at.out_row;
        const A* sums = work.sums + r * at.padded;
        const A inverse = A(1) / states[r].sum;
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
    keys_transposed = parts.Take(at.rows * at.d);
    values_transposed = parts.Take(at.rows * at.d);
    keys = parts.Take(at.rows * at.padded);
    dkeys = parts.Take(at.rows * at.padded);
    dvalues = parts.Take(at.rows * at.padded);
    queries = parts.Take(kTile * at.padded);
    dout = parts.Take(kTile * at.padded);
    dqueries = parts.Take(kTile * at.padded);
    scores = parts.Take(kTile * kTile);
    dscores = parts.Take(kTile * kTile);
  }
  static size_t Bytes(const Layout& at) {
    return sizeof(A) *
           size_t(at.rows * (2 * at.d + 3 * at.padded) + kTile * 3 * at.padded + 2 * kTile * kTile);
  }
  A *keys_transposed, *values_transposed, *keys, *dkeys, *dvalues;
  A *queries, *dout, *dqueries, *scores, *dscores;
};

// One tile of queries of one head: adds to dkeys and dvalues, leaves dqueries (before scale).
template <typename A>
void BackwardTile(int64_t i, int64_t count, const Layout& at, const BackwardScratch<A>& work,
                  const A* lse, const A* delta) {
  std::fill_n(work.dqueries, kTile * at.padded, A(0));
  for (int64_t j = 0; j <= i; j += kTile) {
    ForEachStrip(count, j == i, [&](const Strip& strip) {
      Scores(strip, at, work.queries, work.keys_transposed + j * at.d, work.scores);
      Scores(strip, at, work.dout, work.values_transposed + j * at.d, work.dscores);
      for (int64_t r = strip.r0; r < strip.r0 + strip.count; ++r) {
        SoftmaxBackwardRow(work.scores + r * kTile, work.dscores + r * kTile, strip.valid(r),
                           strip.columns, lse[r], delta[r]);
      }
      Mix(strip, at, work.dscores, work.keys + j * at.padded, work.dqueries);
    });
    MixTransposed(count, j == i, at, work.scores, work.dout, work.dvalues + j * at.padded);
    // Queries carry the scale, so these are the gradients of the keys themselves.
    MixTransposed(count, j == i, at, work.dscores, work.queries, work.dkeys + j * at.padded);
  }
}

template <typename T>
void Backward(const AttentionBackwardArgs& args, const Layout& at, std::byte* scratch) {
  using A = Accumulate<T>;
  const BackwardScratch<A> work(at, scratch);
  const T* qkv = args.qkv.as<T>();
  T* dqkv = args.dqkv.as<T>();
  LoadTransposed(qkv + at.key, at.row, at, work.keys_transposed);
  LoadTransposed(qkv + at.value, at.row, at, work.values_transposed);
  Load(qkv + at.key, at.row, at.s, at, A(1), work.keys);
  std::fill_n(work.keys + at.s * at.padded, (at.rows - at.s) * at.padded, A(0));
  std::fill_n(work.dkeys, at.rows * at.padded, A(0));
  std::fill_n(work.dvalues, at.rows * at.padded, A(0));
  for (int64_t head = at.first_head; head < at.first_head + at.group; ++head) {
    const A* lse = args.lse.as<A>() + at.statistic(head);
    for (int64_t i = 0; i < at.s; i += kTile) {
      const int64_t count = std::min(kTile, at.s - i);
      const T* dout = args.dout.as<T>() + at.output(head) + i * at.out_row;
      const T* out = args.out.as<T>() + at.output(head) + i * at.out_row;
      Load(qkv + at.query(head) + i * at.row, at.row, count, at, A(at.scale), work.queries);
      Load(dout, at.out_row, count, at, A(1), work.dout);
      A delta[kTile];
      for (int64_t r = 0; r < count; ++r) {
        A sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < at.d; ++c) {
          sum += A(dout[r * at.out_row + c]) * A(out[r * at.out_row + c]);
        }
        delta[r] = sum;
      }
      BackwardTile(i, count, at, work, lse + i, delta);
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
