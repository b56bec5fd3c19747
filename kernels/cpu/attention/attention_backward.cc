// Works as attention_forward.cc, and computes the scores again. A task sums the gradients of its
// keys and values over its queries, so no sum depends on an order of tasks. All sequences
// contribute to the gradient of a sink, which is summed from one value for each sequence and head.
// Bound by multiply-adds: 6 d + 4 e FLOPs per score.

#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/cpu/attention/attention_blocks.h"

namespace trainyard::cpu {
namespace {

// to[r, c] = or += scale * from[r, c]. Without inlining, backward of short sequences takes about 5
// % longer.
template <typename O, typename A>
[[gnu::always_inline]] inline void Store(const A* from, A scale, const Width& width,
                                         const Rows<O>& to, Write write) {
  for (int64_t r = 0; r < to.count; ++r, from += width.padded) {
    O* row = to.data + r * to.stride;
    if (write == Write::kAdd) {
#pragma omp simd
      for (int64_t c = 0; c < width.d; ++c) row[c] = O(A(row[c]) + from[c] * scale);
    } else {
#pragma omp simd
      for (int64_t c = 0; c < width.d; ++c) row[c] = O(from[c] * scale);
    }
  }
}

template <typename Products>
struct BackwardScratch {
  using Element = typename Products::Element;
  BackwardScratch(const Layout& at, std::byte* data) {
    OperandPieces pieces(data);
    pieces.Take(keys, at.part.kv_rows, at.key);
    pieces.Take(values, at.part.kv_rows, at.value);
    pieces.Take(queries, kQueries, at.key);
    pieces.Take(dout, kQueries, at.value);
    pieces.Take(query_strip, kQueries * at.key.padded);
    pieces.Take(dout_strip, kQueries * at.value.padded);
    pieces.Take(weights, kQueries * kKeys);
    pieces.Take(dkeys, at.part.kv_rows * at.key.padded);
    pieces.Take(dvalues, at.part.kv_rows * at.value.padded);
    pieces.Take(dqueries, kQueries * at.key.padded);
    for (auto* block : {&scores, &dscores}) pieces.Take(*block, kQueries * kKeys);
    pieces.Take(slopes, at.soft_cap > 0 ? kQueries * kKeys : 0);
    bytes = pieces.BytesFrom(data);
  }
  Operand<Products> keys, values, queries, dout;  // All keys of the part, or a strip of queries.
  Element *query_strip, *dout_strip, *weights;    // *_strip are transposed.
  // `slopes` is used with a soft cap.
  typename Products::Sum *dkeys, *dvalues, *dqueries, *scores, *dscores, *slopes;
  size_t bytes;
};

// The statistics of a strip's queries.
template <typename A>
struct Statistics {
  alignas(64) A lse[kQueries] = {};
  alignas(64) A delta[kQueries] = {};

  template <typename T>
  Statistics(const A* lses, const Rows<const T>& out, const Rows<const T>& dout,
             const Width& width) {
    for (int64_t q = 0; q < out.count; ++q) {
      A sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t c = 0; c < width.d; ++c) {
        sum += A(dout.data[q * dout.stride + c]) * A(out.data[q * out.stride + c]);
      }
      delta[q] = sum;
      // A query that sees nothing has no weights, so any finite value will do.
      lse[q] = std::isinf(lses[q]) ? A(0) : lses[q];
    }
  }
};

// Processes a strip: adds to dkeys and dvalues, and writes dqueries (dkeys and dqueries without
// scale).
template <typename Products, typename A>
void BackwardStrip(const HeadStrip& head, const Layout& at, const BackwardScratch<Products>& work,
                   const Statistics<A>& of) {
  const Strip& strip = head.strip;
  const Sight& sees = head.sees;
  std::fill_n(work.dqueries, kQueries * at.key.padded, A(0));
  sees.ForEachBlock([&](int64_t j, int64_t keys) {
    const Extent extent = {strip.count, keys};
    Scores<Products>(keys, at.key, work.keys.DotsAt(j, at.key), work.query_strip, work.scores);
    Scores<Products>(keys, at.value, work.values.DotsAt(j, at.value), work.dout_strip,
                     work.dscores);
    ScoreBlock<A> block = {work.scores, keys, sees.diagonal - j, A(at.scale)};
    if (at.soft_cap > 0) Cap(block, A(at.soft_cap), work.slopes);
    sees.Hide(j, keys, work.scores);
    head.Drop(j, keys, work.dscores);
    SoftmaxBackward(block, work.dscores, of.lse, of.delta);
    head.Drop(j, keys, work.scores);
    if (at.soft_cap > 0) {
#pragma omp simd
      for (int64_t n = 0; n < keys * kQueries; ++n) work.dscores[n] *= work.slopes[n];
    }
    MixKeys<Products>(extent, at.key, AcrossKeys<Products>(work.dscores, keys, work.weights),
                      work.keys.MixAt(j, at.key), work.dqueries);
    MixQueries<Products>(extent, at.value, AlongQueries<Products>(work.scores, keys, work.weights),
                         work.dout.mix, work.dvalues + j * at.value.padded);
    MixQueries<Products>(extent, at.key, AlongQueries<Products>(work.dscores, keys, work.weights),
                         work.queries.mix, work.dkeys + j * at.key.padded);
  });
}

// The sum of p[i] delta[i] over a strip's queries, where p[i] is the weight of the sink.
template <typename A>
A SinkShare(A sink, const Statistics<A>& of, int64_t count) {
  A sum = 0;
  for (int64_t q = 0; q < count; ++q) sum += std::exp(sink - of.lse[q]) * of.delta[q];
  return sum;
}

template <typename Products, typename T, typename O>
void Backward(const AttentionBackwardCore<T, O>& core, const Layout& at, std::byte* scratch,
              Accumulate<T>* shares) {
  using A = Accumulate<T>;
  const BackwardScratch<Products> work(at, scratch);
  const Rows<const T> keys = at.Keys(core.k, at.key);
  LoadDots(keys, at.key, work.keys);
  LoadMix(keys, at.key, work.keys);
  LoadDots(at.Keys(core.v, at.value), at.value, work.values);
  std::fill_n(work.dkeys, at.part.kv_rows * at.key.padded, A(0));
  std::fill_n(work.dvalues, at.part.kv_rows * at.value.padded, A(0));
  for (int64_t head = at.first_head; head < at.first_head + at.group; ++head) {
    A share = 0;
    const HeadDropout dropout(core.dropout, at.q_first, head);
    for (int64_t i = 0; i < at.part.q_rows; i += kQueries) {
      const Strip strip = {i, std::min(kQueries, at.part.q_rows - i)};
      const Rows<const T> queries = at.Queries(core.q, at.key, head, strip);
      LoadDots(queries, at.key, work.queries);
      LoadMix(queries, at.key, work.queries);
      Transpose<Products>(work.queries.dots, strip.count, at.key, work.query_strip);
      const Rows<const T> dout = at.Queries(core.dout, at.value, head, strip);
      LoadDots(dout, at.value, work.dout);
      LoadMix(dout, at.value, work.dout);
      Transpose<Products>(work.dout.dots, strip.count, at.value, work.dout_strip);
      const Statistics<A> of(core.lse + at.Statistic(head, i),
                             at.Queries(core.out, at.value, head, strip), dout, at.value);
      BackwardStrip(HeadStrip(at, core.documents, strip, dropout), at, work, of);
      if (core.sinks != nullptr) share += SinkShare(A(core.sinks[head]), of, strip.count);
      Store(work.dqueries, A(at.scale), at.key, at.Queries(core.dq, at.key, head, strip),
            core.write_dq);
    }
    if (core.sinks != nullptr) shares[at.batch * at.heads + head] = share;
  }
  Store(work.dkeys, A(at.scale), at.key, at.Keys(core.dk, at.key), core.write_dkv);
  Store(work.dvalues, A(1), at.value, at.Keys(core.dv, at.value), core.write_dkv);
}

template <typename Products, typename T, typename O>
void RunOn(Exec& exec, const AttentionBackwardCore<T, O>& core) {
  using A = Accumulate<T>;
  const int64_t heads = core.dims.heads;
  A* shares = nullptr;  // [sequences, heads]
  if (core.sinks != nullptr) {
    const auto bytes = size_t(core.sequences * heads) * sizeof(A);
    shares = reinterpret_cast<A*>(ContextOf(exec).shared.Reserve(bytes));
  }
  const size_t bytes = BackwardScratch<Products>(Layout(core.dims, core.part, 0), nullptr).bytes;
  ForEachTask(exec, core, bytes, [&](const Layout& at, std::byte* data) {
    Backward<Products>(core, at, data, shares);
  });
  if (core.sinks == nullptr) return;
  for (int64_t head = 0; head < heads; ++head) {
    A sum = core.write_dsinks == Write::kAdd ? core.dsinks[head] : A(0);
    for (int64_t b = 0; b < core.sequences; ++b) sum -= shares[b * heads + head];
    core.dsinks[head] = sum;
  }
}

}  // namespace

template <typename T, typename O>
void Run(Exec& exec, const AttentionBackwardCore<T, O>& core) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (HasBf16Pairs()) return RunOn<PairedProducts>(exec, core);
  }
  RunOn<PlainProducts<Accumulate<T>>>(exec, core);
}

template void Run(Exec&, const AttentionBackwardCore<double, double>&);
template void Run(Exec&, const AttentionBackwardCore<float, float>&);
template void Run(Exec&, const AttentionBackwardCore<bf16, bf16>&);
template void Run(Exec&, const AttentionBackwardCore<bf16, float>&);

}  // namespace trainyard::cpu
