// A task is one sequence and one key/value head with its group of query heads. Its keys and values
// are copied once into what products take: f32 or f64, or bf16 in pairs. Queries pass in strips of
// 32, transposed, over blocks of 64 keys, up to their own when causal: scores then have a key a
// row, so that softmax needs no sums across a vector and every product is TileProduct on contiguous
// rows. Only the last 32 keys of a strip are masked. Bound by multiply-adds: 4 d (forward) and 10 d
// (backward) FLOPs per score, of which there are half as many when causal.

#include "kernels/cpu/attention_core.h"

#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/cpu/attention_operands.h"
#include "kernels/cpu/attention_softmax.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/tile_product.h"

namespace trainyard::cpu {
namespace {

constexpr int64_t kKeys = 64;  // Of a block.

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
template <typename Products>
void Scores(int64_t keys, const Layout& at, const typename Products::Element* dots,
            const typename Products::Element* strip, typename Products::Sum* products) {
  TileProduct(typename Products::Args{.m = keys,
                                      .n = kQueries,
                                      .k = RoundUp(at.d, Products::kPer) / Products::kPer,
                                      .a = dots,
                                      .a_row = at.padded / Products::kPer,
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
template <typename Products>
void MixKeys(const Extent& extent, const Layout& at, const typename Products::Element* weights,
             const typename Products::Element* mix, typename Products::Sum* sums) {
  TileProduct(typename Products::Args{.m = extent.queries,
                                      .n = at.padded,
                                      .k = RoundUp(extent.keys, Products::kPer) / Products::kPer,
                                      .a = weights,
                                      .a_row = 1,
                                      .a_column = kQueries,
                                      .b = mix,
                                      .b_row = at.padded,
                                      .c = sums,
                                      .c_row = at.padded,
                                      .add = true});
}

// sums[key, :] += sum over queries of weights[key, q] rows[q, :]
template <typename Products>
void MixQueries(const Extent& extent, const Layout& at, const typename Products::Element* weights,
                const typename Products::Element* mix, typename Products::Sum* sums) {
  TileProduct(typename Products::Args{.m = extent.keys,
                                      .n = at.padded,
                                      .k = RoundUp(extent.queries, Products::kPer) / Products::kPer,
                                      .a = weights,
                                      .a_row = kQueries / Products::kPer,
                                      .a_column = 1,
                                      .b = mix,
                                      .b_row = at.padded,
                                      .c = sums,
                                      .c_row = at.padded,
                                      .add = true});
}

template <typename Products>
struct ForwardScratch {
  using Element = typename Products::Element;
  ForwardScratch(const Layout& at, std::byte* data) {
    Pieces pieces(data);
    pieces.Take(keys, at.kv_rows, at);
    pieces.Take(values, at.kv_rows, at);
    pieces.Take(queries, kQueries, at);
    pieces.Take(strip, kQueries * at.padded);
    pieces.Take(weights, kQueries * kKeys);
    pieces.Take(sums, kQueries * at.padded);
    pieces.Take(scores, kQueries * kKeys);
    bytes = pieces.BytesFrom(data);
  }
  Operand<Products> keys, values, queries;
  Element *strip, *weights;
  typename Products::Sum *sums, *scores;
  size_t bytes;
};

// A strip over all keys that it sees; leaves sum_j p v in work.sums.
template <typename Products, typename A>
void ForwardStrip(const Strip& strip, const Layout& at, const ForwardScratch<Products>& work,
                  SoftmaxState<A>& state) {
  std::fill_n(work.sums, kQueries * at.padded, A(0));
  std::fill_n(state.largest, kQueries, -std::numeric_limits<A>::infinity());
  std::fill_n(state.sum, kQueries, A(0));
  ForEachBlock(strip.i, at, [&](int64_t j, int64_t keys) {
    Scores<Products>(keys, at, work.keys.DotsAt(j, at), work.strip, work.scores);
    SoftmaxForward({work.scores, keys, FirstOf(strip.i, j, at), A(at.scale)}, state);
    for (int64_t q = 0; q < strip.count; ++q) {
      if (state.shrink[q] == A(1) || j == 0) continue;
      A* sums = work.sums + q * at.padded;
#pragma omp simd
      for (int64_t c = 0; c < at.padded; ++c) sums[c] *= state.shrink[q];
    }
    MixKeys<Products>({strip.count, keys}, at,
                      AcrossKeys<Products>(work.scores, keys, work.weights),
                      work.values.MixAt(j, at), work.sums);
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

template <typename Products, typename T, typename O>
void Forward(const AttentionForwardCore<T, O>& core, const Layout& at, std::byte* scratch) {
  using A = Accumulate<T>;
  const ForwardScratch<Products> work(at, scratch);
  LoadDots(at.Key(core.k), at, work.keys);
  LoadDots(at.Key(core.v), at, work.values);
  LoadMix(at.Key(core.v), at, work.values);
  SoftmaxState<A> state;
  const Finish<O, A> finish = {state, at, core.write};
  for (int64_t head = at.first_head; head < at.first_head + at.group; ++head) {
    A* lse = core.lse + at.Statistic(head, 0);
    for (int64_t i = 0; i < at.q_rows; i += kQueries) {
      const int64_t count = std::min(kQueries, at.q_rows - i);
      LoadDots(at.Queries(core.q, head, i, count), at, work.queries);
      Transpose<Products>(work.queries.dots, count, at, work.strip);
      ForwardStrip({i, count}, at, work, state);
      for (int64_t q = 0; q < count; ++q) {
        finish(q, work.sums + q * at.padded, at.Query(core.out, head, i + q), lse[i + q]);
      }
    }
  }
}

template <typename Products>
struct BackwardScratch {
  using Element = typename Products::Element;
  BackwardScratch(const Layout& at, std::byte* data) {
    Pieces pieces(data);
    for (auto* operand : {&keys, &values}) pieces.Take(*operand, at.kv_rows, at);
    for (auto* operand : {&queries, &dout}) pieces.Take(*operand, kQueries, at);
    for (auto* strip : {&query_strip, &dout_strip}) pieces.Take(*strip, kQueries * at.padded);
    pieces.Take(weights, kQueries * kKeys);
    for (auto* all : {&dkeys, &dvalues}) pieces.Take(*all, at.kv_rows * at.padded);
    pieces.Take(dqueries, kQueries * at.padded);
    for (auto* block : {&scores, &dscores}) pieces.Take(*block, kQueries * kKeys);
    bytes = pieces.BytesFrom(data);
  }
  Operand<Products> keys, values, queries, dout;  // All of the part's keys, a strip of queries.
  Element *query_strip, *dout_strip, *weights;    // *_strip are transposed.
  typename Products::Sum *dkeys, *dvalues, *dqueries, *scores, *dscores;
  size_t bytes;
};

// A strip: adds to dkeys and dvalues, leaves dqueries (dkeys and dqueries before scale).
template <typename Products, typename A>
void BackwardStrip(const Strip& strip, const Layout& at, const BackwardScratch<Products>& work,
                   const A* lse, const A* delta) {
  std::fill_n(work.dqueries, kQueries * at.padded, A(0));
  ForEachBlock(strip.i, at, [&](int64_t j, int64_t keys) {
    const Extent extent = {strip.count, keys};
    Scores<Products>(keys, at, work.keys.DotsAt(j, at), work.query_strip, work.scores);
    Scores<Products>(keys, at, work.values.DotsAt(j, at), work.dout_strip, work.dscores);
    SoftmaxBackward({work.scores, keys, FirstOf(strip.i, j, at), A(at.scale)}, work.dscores, lse,
                    delta);
    MixKeys<Products>(extent, at, AcrossKeys<Products>(work.dscores, keys, work.weights),
                      work.keys.MixAt(j, at), work.dqueries);
    MixQueries<Products>(extent, at, AlongQueries<Products>(work.scores, keys, work.weights),
                         work.dout.mix, work.dvalues + j * at.padded);
    MixQueries<Products>(extent, at, AlongQueries<Products>(work.dscores, keys, work.weights),
                         work.queries.mix, work.dkeys + j * at.padded);
  });
}

template <typename Products, typename T, typename O>
void Backward(const AttentionBackwardCore<T, O>& core, const Layout& at, std::byte* scratch) {
  using A = Accumulate<T>;
  const BackwardScratch<Products> work(at, scratch);
  LoadDots(at.Key(core.k), at, work.keys);
  LoadMix(at.Key(core.k), at, work.keys);
  LoadDots(at.Key(core.v), at, work.values);
  std::fill_n(work.dkeys, at.kv_rows * at.padded, A(0));
  std::fill_n(work.dvalues, at.kv_rows * at.padded, A(0));
  for (int64_t head = at.first_head; head < at.first_head + at.group; ++head) {
    for (int64_t i = 0; i < at.q_rows; i += kQueries) {
      const int64_t count = std::min(kQueries, at.q_rows - i);
      const Rows<const T> queries = at.Queries(core.q, head, i, count);
      LoadDots(queries, at, work.queries);
      LoadMix(queries, at, work.queries);
      Transpose<Products>(work.queries.dots, count, at, work.query_strip);
      const Rows<const T> dout = at.Queries(core.dout, head, i, count);
      LoadDots(dout, at, work.dout);
      LoadMix(dout, at, work.dout);
      Transpose<Products>(work.dout.dots, count, at, work.dout_strip);
      const Rows<const T> out = at.Queries(core.out, head, i, count);
      alignas(64) A lse[kQueries] = {}, delta[kQueries] = {};
      std::copy_n(core.lse + at.Statistic(head, i), count, lse);
      for (int64_t q = 0; q < count; ++q) {
        A sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < at.d; ++c) {
          sum += A(dout.data[q * dout.stride + c]) * A(out.data[q * out.stride + c]);
        }
        delta[q] = sum;
      }
      BackwardStrip({i, count}, at, work, lse, delta);
      Store(work.dqueries, A(at.scale), at, at.Queries(core.dq, head, i, count), core.write_dq);
    }
  }
  Store(work.dkeys, A(at.scale), at, at.Key(core.dk), core.write_dkv);
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

template <typename Products, typename T, typename O>
void RunOn(Exec& exec, const AttentionForwardCore<T, O>& core) {
  const size_t bytes = ForwardScratch<Products>(Layout(core.dims, core.part, 0), nullptr).bytes;
  ForEachTask(exec, core, bytes,
              [&](const Layout& at, std::byte* data) { Forward<Products>(core, at, data); });
}

template <typename Products, typename T, typename O>
void RunOn(Exec& exec, const AttentionBackwardCore<T, O>& core) {
  const size_t bytes = BackwardScratch<Products>(Layout(core.dims, core.part, 0), nullptr).bytes;
  ForEachTask(exec, core, bytes,
              [&](const Layout& at, std::byte* data) { Backward<Products>(core, at, data); });
}

template <typename T, typename Core>
void RunOnBest(Exec& exec, const Core& core) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (HasBf16Pairs()) return RunOn<PairedProducts>(exec, core);
  }
  RunOn<PlainProducts<Accumulate<T>>>(exec, core);
}

}  // namespace

template <typename T, typename O>
void Run(Exec& exec, const AttentionForwardCore<T, O>& core) {
  RunOnBest<T>(exec, core);
}

template <typename T, typename O>
void Run(Exec& exec, const AttentionBackwardCore<T, O>& core) {
  RunOnBest<T>(exec, core);
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
