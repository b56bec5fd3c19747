#include "kernels/cpu/attention/attention_single.h"

#include <cmath>
#include <limits>

#include "kernels/cpu/attention/attention_blocks.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/pieces.h"

namespace trainyard::cpu {
namespace {

// Some neighbouring key/value heads of a sequence, with their groups of query heads.
struct Piece {
  Layout at;  // Of the first key/value head.
  int64_t kv_heads;
  int64_t heads() const { return kv_heads * at.group; }
};

template <typename T>
struct SingleScratch {
  SingleScratch(const Piece& piece, std::byte* data) {
    Pieces pieces(data);
    pieces.Take(scores, piece.heads() * piece.at.part.kv_rows);
    pieces.Take(sums, piece.heads() * piece.at.value.d);
    bytes = pieces.BytesFrom(data);
  }
  T* scores;  // [heads, keys], of the keys that the query sees: at most kv_rows.
  T* sums;    // [heads, value dim]
  size_t bytes;
};

template <typename T>
T Dot(const T* a, const T* b, int64_t n) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t c = 0; c < n; ++c) sum += a[c] * b[c];
  return sum;
}

// Replaces the scores by exp(score - largest), and sets `inverse` to 1 / their sum, to which a sink
// adds. Returns the logarithm of the sum of exp(score).
template <typename T>
T Softmax(const Layout& at, const T* sink, T* scores, int64_t keys, T& inverse) {
  const T scale = T(at.scale), cap = T(at.soft_cap);
  T largest = sink != nullptr ? *sink : -std::numeric_limits<T>::infinity();
  for (int64_t j = 0; j < keys; ++j) {
    scores[j] *= scale;
    if (cap > 0) scores[j] = cap * std::tanh(scores[j] / cap);
    largest = std::max(largest, scores[j]);
  }
  T sum = sink != nullptr ? Exp(*sink - largest) : T(0);
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < keys; ++j) {
    scores[j] = Exp(scores[j] - largest);
    sum += scores[j];
  }
  inverse = T(1) / sum;
  return largest + std::log(sum);
}

template <typename T>
void Attend(const AttentionForwardCore<T, T>& core, const Piece& piece, std::byte* scratch) {
  const Layout& at = piece.at;
  const SingleScratch<T> work(piece, scratch);
  const Strip query = {0, 1};
  const Sight sees(at, core.documents, query);
  const int64_t begin = sees.by_query ? sees.begins[0] : 0;
  const int64_t end = sees.by_query ? sees.ends[0] : std::min(sees.end, sees.diagonal + 1);
  const int64_t keys = std::max<int64_t>(0, end - begin), d = at.key.d, e = at.value.d;
  const Rows<const T> k = at.Keys(core.k, at.key), v = at.Keys(core.v, at.value);
  for (int64_t j = 0; j < keys; ++j) {
    const T* const row = k.data + (begin + j) * k.stride;
    for (int64_t h = 0; h < piece.heads(); ++h) {
      const T* const q = at.Queries(core.q, at.key, at.first_head + h, query).data;
      work.scores[h * keys + j] = Dot(q, row + h / at.group * d, d);
    }
  }
  for (int64_t h = 0; h < piece.heads(); ++h) {
    const int64_t head = at.first_head + h;
    const T* const sink = core.sinks != nullptr ? core.sinks + head : nullptr;
    T inverse = 0, *const scores = work.scores + h * keys;
    T& lse = core.lse[at.Statistic(head, 0)];
    if (keys == 0 && sink == nullptr) {
      lse = -std::numeric_limits<T>::infinity();
      continue;
    }
    lse = Softmax(at, sink, scores, keys, inverse);
    for (int64_t j = 0; j < keys; ++j) scores[j] *= inverse;
  }
  std::fill_n(work.sums, piece.heads() * e, T(0));
  for (int64_t j = 0; j < keys; ++j) {
    const T* const row = v.data + (begin + j) * v.stride;
    for (int64_t h = 0; h < piece.heads(); ++h) {
      const T weight = work.scores[h * keys + j], *const value = row + h / at.group * e;
      T* const sums = work.sums + h * e;
#pragma omp simd
      for (int64_t c = 0; c < e; ++c) sums[c] += weight * value[c];
    }
  }
  for (int64_t h = 0; h < piece.heads(); ++h) {
    std::copy_n(work.sums + h * e, e,
                at.Queries(core.out, at.value, at.first_head + h, query).data);
  }
}

}  // namespace

template <typename T>
void RunSingle(Exec& exec, const AttentionForwardCore<T, T>& core) {
  // A row of the cache has all heads side by side, and is read in as few pieces as threads allow.
  const int64_t kv_heads = core.dims.kv_heads;
  const int64_t wanted = (exec.threads + core.sequences - 1) / core.sequences;
  const int64_t pieces = std::min<int64_t>(kv_heads, wanted);
  const int64_t most = (kv_heads + pieces - 1) / pieces;
  const size_t bytes = SingleScratch<T>({Layout(core.dims, core.part, 0), most}, nullptr).bytes;
  Context& context = ContextOf(exec);
  ParallelTasks(exec, core.sequences * pieces, [&](int64_t task, int thread) {
    const int64_t first = task % pieces * most, last = std::min(kv_heads, first + most);
    if (first >= last) return;
    const Piece piece = {Layout(core.dims, core.part, task / pieces * kv_heads + first),
                         last - first};
    std::byte* const scratch = context.scratch[thread].Reserve(bytes);
    CallRange([&](int64_t /*begin*/, int64_t /*end*/) { Attend(core, piece, scratch); }, 0, 1);
  });
}

template void RunSingle(Exec&, const AttentionForwardCore<float, float>&);
template void RunSingle(Exec&, const AttentionForwardCore<double, double>&);

}  // namespace trainyard::cpu
