// A task is one sequence and one key/value head with its group of query heads. The task copies its
// keys and values once into the form that products take: f32 or f64, or bf16 in pairs. Queries are
// processed in transposed strips of 32, over the blocks of 64 keys that they see. So a row of
// scores belongs to one key, softmax needs no sums across a vector, and every product is a
// TileProduct on contiguous rows. Bound by multiply-adds: 2 (d + e) FLOPs per score, half as many
// scores if causal.

#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/cpu/attention/attention_blocks.h"
#include "kernels/cpu/attention/attention_single.h"

namespace trainyard::cpu {
namespace {

template <typename Products>
struct ForwardScratch {
  using Element = typename Products::Element;
  ForwardScratch(const Layout& at, std::byte* data) {
    OperandPieces pieces(data);
    pieces.Take(keys, at.part.kv_rows, at.key);
    pieces.Take(values, at.part.kv_rows, at.value);
    pieces.Take(queries, kQueries, at.key);
    pieces.Take(strip, kQueries * at.key.padded);
    pieces.Take(weights, kQueries * kKeys);
    pieces.Take(sums, kQueries * at.value.padded);
    pieces.Take(scores, kQueries * kKeys);
    bytes = pieces.BytesFrom(data);
  }
  Operand<Products> keys, values, queries;
  Element *strip, *weights;
  typename Products::Sum *sums, *scores;
  size_t bytes;
};

// Processes a strip over all keys that it sees. Leaves sum_j p v in work.sums. `state` begins with
// the sink.
template <typename Products, typename A>
void ForwardStrip(const HeadStrip& of, const Layout& at, const ForwardScratch<Products>& work,
                  SoftmaxState<A>& state) {
  const Strip& strip = of.strip;
  const Sight& sees = of.sees;
  std::fill_n(work.sums, kQueries * at.value.padded, A(0));
  sees.ForEachBlock([&](int64_t j, int64_t keys) {
    Scores<Products>(keys, at.key, work.keys.DotsAt(j, at.key), work.strip, work.scores);
    ScoreBlock<A> block = {work.scores, keys, sees.diagonal - j, A(at.scale)};
    if (at.soft_cap > 0) Cap(block, A(at.soft_cap), static_cast<A*>(nullptr));
    sees.Hide(j, keys, work.scores);
    SoftmaxForward(block, state);
    of.Drop(j, keys, work.scores);
    for (int64_t q = 0; q < strip.count; ++q) {
      if (state.shrink[q] == A(1) || j == sees.begin) continue;
      A* sums = work.sums + q * at.value.padded;
#pragma omp simd
      for (int64_t c = 0; c < at.value.padded; ++c) sums[c] *= state.shrink[q];
    }
    MixKeys<Products>({strip.count, keys}, at.value,
                      AcrossKeys<Products>(work.scores, keys, work.weights),
                      work.values.MixAt(j, at.value), work.sums);
  });
}

// Writes a strip's results to a row of out and to its lse.
template <typename O, typename A>
struct Finish {
  const SoftmaxState<A>& state;
  const Layout& at;
  Write write;
  void operator()(int64_t q, const A* sums, O* out, A& lse) const {
    const int64_t d = at.value.d;
    const bool empty = state.sum[q] == A(0);  // It sees no key, and has no sink.
    const A mine = state.largest[q] + std::log(state.sum[q]);
    const A inverse = empty ? A(0) : A(1) / state.sum[q];
    if (write == Write::kOverwrite) {
      lse = mine;
#pragma omp simd
      for (int64_t c = 0; c < d; ++c) out[c] = O(sums[c] * inverse);
    } else if (!empty) {
      const A before = lse, larger = std::max(before, mine);
      lse = larger + std::log(std::exp(before - larger) + std::exp(mine - larger));
      const A keep = std::exp(before - lse), take = std::exp(mine - lse) * inverse;
#pragma omp simd
      for (int64_t c = 0; c < d; ++c) out[c] = O(A(out[c]) * keep + sums[c] * take);
    }
  }
};

template <typename A, typename T>
void Begin(const T* sinks, int64_t head, SoftmaxState<A>& state) {
  const bool has_sink = sinks != nullptr;
  std::fill_n(state.largest, kQueries,
              has_sink ? A(sinks[head]) : -std::numeric_limits<A>::infinity());
  std::fill_n(state.sum, kQueries, has_sink ? A(1) : A(0));
}

// Calls body(strip) for each strip of the part's queries.
template <typename Body>
void ForEachStrip(const Layout& at, const Body& body) {
  for (int64_t i = 0; i < at.part.q_rows; i += kQueries) {
    body(Strip{i, std::min(kQueries, at.part.q_rows - i)});
  }
}

// Copies the keys and values that some query sees. The first of them is a multiple of kKeys.
template <typename Products, typename T, typename O>
void LoadKeys(const AttentionForwardCore<T, O>& core, const Layout& at,
              const ForwardScratch<Products>& work) {
  int64_t begin = at.part.kv_rows, end = 0;
  ForEachStrip(at, [&](const Strip& strip) {
    const Sight sees(at, core.documents, strip);
    begin = std::min(begin, sees.begin);
    end = std::max(end, sees.end);
  });
  if (begin >= end) return;
  const auto load = [&](const Heads<const T>& from, const Width& width, const Operand<Products>& to,
                        bool mixed) {
    const Rows<const T> all = at.Keys(from, width);
    const Rows<const T> seen = {all.data + begin * all.stride, all.stride, end - begin};
    const Operand<Products> place = {to.dots + begin * width.padded / Products::kPer,
                                     to.mix + begin / Products::kPer * width.padded};
    LoadDots(seen, width, place);
    if (mixed) LoadMix(seen, width, place);
  };
  load(core.k, at.key, work.keys, false);
  load(core.v, at.value, work.values, true);
}

template <typename Products, typename T, typename O>
void Forward(const AttentionForwardCore<T, O>& core, const Layout& at, std::byte* scratch) {
  using A = Accumulate<T>;
  const ForwardScratch<Products> work(at, scratch);
  LoadKeys(core, at, work);
  SoftmaxState<A> state;
  const Finish<O, A> finish = {state, at, core.write};
  for (int64_t head = at.first_head; head < at.first_head + at.group; ++head) {
    A* lse = core.lse + at.Statistic(head, 0);
    const HeadDropout dropout(core.dropout, at.q_first, head);
    ForEachStrip(at, [&](const Strip& strip) {
      LoadDots(at.Queries(core.q, at.key, head, strip), at.key, work.queries);
      Transpose<Products>(work.queries.dots, strip.count, at.key, work.strip);
      Begin(core.sinks, head, state);
      ForwardStrip(HeadStrip(at, core.documents, strip, dropout), at, work, state);
      const Rows<O> out = at.Queries(core.out, at.value, head, strip);
      for (int64_t q = 0; q < strip.count; ++q) {
        finish(q, work.sums + q * at.value.padded, out.data + q * out.stride, lse[strip.i + q]);
      }
    });
  }
}

template <typename Products, typename T, typename O>
void RunOn(Exec& exec, const AttentionForwardCore<T, O>& core) {
  const size_t bytes = ForwardScratch<Products>(Layout(core.dims, core.part, 0), nullptr).bytes;
  ForEachTask(exec, core, bytes,
              [&](const Layout& at, std::byte* data) { Forward<Products>(core, at, data); });
}

}  // namespace

template <typename T, typename O>
void Run(Exec& exec, const AttentionForwardCore<T, O>& core) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (HasBf16Pairs()) return RunOn<PairedProducts>(exec, core);
  } else {
    if (IsSingle(core)) return RunSingle(exec, core);
  }
  RunOn<PlainProducts<Accumulate<T>>>(exec, core);
}

template void Run(Exec&, const AttentionForwardCore<double, double>&);
template void Run(Exec&, const AttentionForwardCore<float, float>&);
template void Run(Exec&, const AttentionForwardCore<bf16, bf16>&);
template void Run(Exec&, const AttentionForwardCore<bf16, float>&);

}  // namespace trainyard::cpu
