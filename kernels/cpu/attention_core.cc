// A task is one sequence and one key/value head with its group of query heads. Its keys and values
// are copied once into f32 (or f64). Queries pass in strips of 32, transposed, over blocks of 64
// keys, up to their own when causal: scores then have a key a row, so that softmax needs no sums
// across a vector and every product is TileProduct on contiguous rows. Only the last 32 keys of a
// strip are masked. Bound by multiply-adds: 4 d (forward) and 10 d (backward) FLOPs per score, of
// which there are half as many when causal.

#include "kernels/cpu/attention_core.h"

#include <cmath>
#include <limits>
#include <utility>

#include "kernels/cpu/attention_softmax.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/tile_product.h"

namespace trainyard::cpu {
namespace {

constexpr int64_t kKeys = 64;  // Of a block.

constexpr int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// `count` rows of a head within a packed tensor.
template <typename T>
struct Rows {
  T* data;
  int64_t stride;
  int64_t count;
};

// Where a task's heads and rows lie, and the sizes of its copies.
struct Layout {
  Layout(const AttentionDims& dims, const AttentionPart& part, int64_t task)
      : q_rows(part.q_rows),
        kv_rows(part.kv_rows),
        causal(part.causal),
        d(dims.head_dim),
        group(dims.heads / dims.kv_heads),
        batch(task / dims.kv_heads),
        kv_head(task % dims.kv_heads),
        first_head(kv_head * group),
        q_first(batch * dims.sequence + part.q_begin),
        kv_first(batch * dims.sequence + part.kv_begin),
        lse_first(batch * dims.heads * dims.sequence + part.q_begin),
        lse_row(dims.sequence),
        padded(RoundUp(d, kTileLanes)),
        scale(dims.scale) {}
  // A query head from row i of the part on, and the part's rows of the key/value head.
  template <typename T>
  T* Query(const Heads<T>& heads, int64_t head, int64_t i) const {
    return heads.data + (q_first + i) * heads.row + head * d;
  }
  template <typename T>
  Rows<T> Key(const Heads<T>& heads) const {
    return {heads.data + kv_first * heads.row + kv_head * d, heads.row, kv_rows};
  }
  int64_t Statistic(int64_t head, int64_t i) const { return lse_first + head * lse_row + i; }

  int64_t q_rows, kv_rows;
  bool causal;
  int64_t d, group, batch, kv_head, first_head;
  int64_t q_first, kv_first, lse_first, lse_row;
  int64_t padded;  // d up to whole vectors
  double scale;
};

// to[r, c] = scale * from[r, c], each row padded with zeroes to at.padded.
template <typename T, typename A>
void Load(const Rows<const T>& from, const Layout& at, A scale, A* to) {
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

// to[r, c] = scale * from[r, c], or adds that. Inlined, or backward of short sequences takes
// some 5 % longer.
template <typename O, typename A>
[[gnu::always_inline]] inline void Store(const A* from, A scale, const Layout& at,
                                         const Rows<O>& to, Write write) {
  for (int64_t r = 0; r < to.count; ++r, from += at.padded) {
    O* row = to.data + r * to.stride;
    if (write == Write::kAdd) {
#pragma omp simd
      for (int64_t c = 0; c < at.d; ++c) row[c] = O(A(row[c]) + from[c] * scale);
    } else {
#pragma omp simd
      for (int64_t c = 0; c < at.d; ++c) row[c] = O(from[c] * scale);
    }
  }
}

// Hands out the pieces of a task's scratch.
template <typename A>
class Pieces {
 public:
  explicit Pieces(std::byte* data) : next_(reinterpret_cast<A*>(data)) {}
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
  const int64_t end = at.causal ? std::min(i + kQueries, at.kv_rows) : at.kv_rows;
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

// Keys of the block at j that query i sees, less one: what ScoreBlock calls first.
int64_t FirstOf(int64_t i, int64_t j, const Layout& at) { return at.causal ? i - j : kKeys; }

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
    Pieces<A> pieces(data);
    keys = pieces.Take(at.kv_rows * at.padded);
    values = pieces.Take(at.kv_rows * at.padded);
    queries = pieces.Take(kQueries * at.padded);
    strip = pieces.Take(kQueries * at.padded);
    sums = pieces.Take(kQueries * at.padded);
    scores = pieces.Take(kQueries * kKeys);
  }
  static size_t Bytes(const Layout& at) {
    return sizeof(A) *
           size_t(2 * at.kv_rows * at.padded + 3 * kQueries * at.padded + kQueries * kKeys);
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
    SoftmaxForward({work.scores, keys, FirstOf(strip.i, j, at)}, state);
    for (int64_t q = 0; q < strip.count; ++q) {
      if (state.shrink[q] == A(1) || j == 0) continue;
      A* sums = work.sums + q * at.padded;
#pragma omp simd
      for (int64_t c = 0; c < at.padded; ++c) sums[c] *= state.shrink[q];
    }
    MixKeys({strip.count, keys}, at, work.scores, work.values + j * at.padded, work.sums);
  });
}

// Takes a strip's results into a row of out and its lse.
template <typename O, typename A>
struct Finish {
  const SoftmaxState<A>& state;
  const Layout& at;
  Write write;
  void operator()(int64_t q, const A* sums, O* out, A& lse) const {
    const A mine = state.largest[q] + std::log(state.sum[q]);
    const A inverse = A(1) / state.sum[q];
    if (write == Write::kOverwrite) {
      lse = mine;
#pragma omp simd
      for (int64_t c = 0; c < at.d; ++c) out[c] = O(sums[c] * inverse);
    } else {
      const A before = lse, larger = std::max(before, mine);
      lse = larger + std::log(std::exp(before - larger) + std::exp(mine - larger));
      const A keep = std::exp(before - lse), take = std::exp(mine - lse) * inverse;
#pragma omp simd
      for (int64_t c = 0; c < at.d; ++c) out[c] = O(A(out[c]) * keep + sums[c] * take);
    }
  }
};

template <typename T, typename O>
void Forward(const AttentionForwardCore<T, O>& core, const Layout& at, std::byte* scratch) {
  using A = Accumulate<T>;
  const ForwardScratch<A> work(at, scratch);
  Load(at.Key(core.k), at, A(1), work.keys);
  Load(at.Key(core.v), at, A(1), work.values);
  SoftmaxState<A> state;
  const Finish<O, A> finish = {state, at, core.write};
  for (int64_t head = at.first_head; head < at.first_head + at.group; ++head) {
    A* lse = core.lse + at.Statistic(head, 0);
    for (int64_t i = 0; i < at.q_rows; i += kQueries) {
      const int64_t count = std::min(kQueries, at.q_rows - i);
      Load(Rows<const T>{at.Query(core.q, head, i), core.q.row, count}, at, A(at.scale),
           work.queries);
      Transpose(work.queries, count, at, work.strip);
      ForwardStrip({i, count}, at, work, state);
      for (int64_t q = 0; q < count; ++q) {
        finish(q, work.sums + q * at.padded, at.Query(core.out, head, i + q), lse[i + q]);
      }
    }
  }
}

template <typename A>
struct BackwardScratch {
  BackwardScratch(const Layout& at, std::byte* data) {
    Pieces<A> pieces(data);
    for (A** all : {&keys, &values, &dkeys, &dvalues}) *all = pieces.Take(at.kv_rows * at.padded);
    for (A** strip : {&queries, &query_strip, &dout, &dout_strip, &dqueries}) {
      *strip = pieces.Take(kQueries * at.padded);
    }
    scores = pieces.Take(kQueries * kKeys);
    dscores = pieces.Take(kQueries * kKeys);
  }
  static size_t Bytes(const Layout& at) {
    return sizeof(A) *
           size_t(4 * at.kv_rows * at.padded + 5 * kQueries * at.padded + 2 * kQueries * kKeys);
  }
  A *keys, *values, *dkeys, *dvalues;                       // Of all of the part's keys.
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
    SoftmaxBackward({work.scores, keys, FirstOf(strip.i, j, at)}, work.dscores, lse, delta);
    MixKeys({strip.count, keys}, at, work.dscores, work.keys + offset, work.dqueries);
    MixQueries({strip.count, keys}, at, work.scores, work.dout, work.dvalues + offset);
    // Queries carry the scale, so these are the gradients of the keys themselves.
    MixQueries({strip.count, keys}, at, work.dscores, work.queries, work.dkeys + offset);
  });
}

template <typename T, typename O>
void Backward(const AttentionBackwardCore<T, O>& core, const Layout& at, std::byte* scratch) {
  using A = Accumulate<T>;
  const BackwardScratch<A> work(at, scratch);
  Load(at.Key(core.k), at, A(1), work.keys);
  Load(at.Key(core.v), at, A(1), work.values);
  std::fill_n(work.dkeys, at.kv_rows * at.padded, A(0));
  std::fill_n(work.dvalues, at.kv_rows * at.padded, A(0));
  for (int64_t head = at.first_head; head < at.first_head + at.group; ++head) {
    for (int64_t i = 0; i < at.q_rows; i += kQueries) {
      const int64_t count = std::min(kQueries, at.q_rows - i);
      const T* out = at.Query(core.out, head, i);
      Load(Rows<const T>{at.Query(core.q, head, i), core.q.row, count}, at, A(at.scale),
           work.queries);
      Transpose(work.queries, count, at, work.query_strip);
      Load(Rows<const T>{at.Query(core.dout, head, i), core.dout.row, count}, at, A(1), work.dout);
      Transpose(work.dout, count, at, work.dout_strip);
      alignas(64) A lse[kQueries] = {}, delta[kQueries] = {};
      std::copy_n(core.lse + at.Statistic(head, i), count, lse);
      for (int64_t q = 0; q < count; ++q) {
        A sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < at.d; ++c) {
          sum += work.dout[q * at.padded + c] * A(out[q * core.out.row + c]);
        }
        delta[q] = sum;
      }
      BackwardStrip({i, count}, at, work, lse, delta);
      Store(work.dqueries, A(at.scale), at, Rows<O>{at.Query(core.dq, head, i), core.dq.row, count},
            core.write_dq);
    }
  }
  Store(work.dkeys, A(1), at, at.Key(core.dk), core.write_dkv);
  Store(work.dvalues, A(1), at, at.Key(core.dv), core.write_dkv);
}

// Calls body(layout, scratch) for each task.
template <typename Core, typename Body>
void ForEachTask(Exec& exec, const Core& core, size_t bytes, const Body& body) {
  Context& context = ContextOf(exec);
  ParallelTasks(exec, core.sequences * core.dims.kv_heads, [&](int64_t task, int thread) {
    body(Layout(core.dims, core.part, task), context.scratch[thread].Reserve(bytes));
  });
}

}  // namespace

template <typename T, typename O>
void Run(Exec& exec, const AttentionForwardCore<T, O>& core) {
  const size_t bytes = ForwardScratch<Accumulate<T>>::Bytes(Layout(core.dims, core.part, 0));
  ForEachTask(exec, core, bytes,
              [&](const Layout& at, std::byte* scratch) { Forward(core, at, scratch); });
}

template <typename T, typename O>
void Run(Exec& exec, const AttentionBackwardCore<T, O>& core) {
  const size_t bytes = BackwardScratch<Accumulate<T>>::Bytes(Layout(core.dims, core.part, 0));
  ForEachTask(exec, core, bytes,
              [&](const Layout& at, std::byte* scratch) { Backward(core, at, scratch); });
}

template void Run(Exec&, const AttentionForwardCore<double, double>&);
template void Run(Exec&, const AttentionForwardCore<float, float>&);
template void Run(Exec&, const AttentionForwardCore<bf16, bf16>&);
template void Run(Exec&, const AttentionForwardCore<bf16, float>&);
template void Run(Exec&, const AttentionBackwardCore<double, double>&);
template void Run(Exec&, const AttentionBackwardCore<float, float>&);
template void Run(Exec&, const AttentionBackwardCore<bf16, bf16>&);
template void Run(Exec&, const AttentionBackwardCore<bf16, float>&);

}  // namespace trainyard::cpu
