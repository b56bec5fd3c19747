#include "kernels/cpu/attention/attention_single.h"

#include <cmath>
#include <limits>

#include "kernels/cpu/attention/attention_blocks.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/pieces.h"

namespace trainyard::cpu {
namespace {

template <typename T>
struct SingleScratch {
  SingleScratch(const Layout& at, std::byte* data) {
    Pieces pieces(data);
    pieces.Take(scores, at.group * at.part.kv_rows);
    pieces.Take(sums, at.group * at.value.d);
    bytes = pieces.BytesFrom(data);
  }
  T* scores;  // [group, keys], of the keys that the query sees: at most kv_rows.
  T* sums;    // [group, value dim]
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
void Attend(const AttentionForwardCore<T, T>& core, const Layout& at, std::byte* scratch) {
  const SingleScratch<T> work(at, scratch);
  const Strip query = {0, 1};
  const Sight sees(at, core.documents, query);
  const int64_t begin = sees.by_query ? sees.begins[0] : 0;
  const int64_t end = sees.by_query ? sees.ends[0] : std::min(sees.end, sees.diagonal + 1);
  const int64_t keys = std::max<int64_t>(0, end - begin), d = at.key.d, e = at.value.d;
  const Rows<const T> k = at.Keys(core.k, at.key), v = at.Keys(core.v, at.value);
  for (int64_t j = 0; j < keys; ++j) {
    const T* const key = k.data + (begin + j) * k.stride;
    for (int64_t h = 0; h < at.group; ++h) {
      const T* const q = at.Queries(core.q, at.key, at.first_head + h, query).data;
      work.scores[h * keys + j] = Dot(q, key, d);
    }
  }
  for (int64_t h = 0; h < at.group; ++h) {
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
  std::fill_n(work.sums, at.group * e, T(0));
  for (int64_t j = 0; j < keys; ++j) {
    const T* const value = v.data + (begin + j) * v.stride;
    for (int64_t h = 0; h < at.group; ++h) {
      const T weight = work.scores[h * keys + j];
      T* const sums = work.sums + h * e;
#pragma omp simd
      for (int64_t c = 0; c < e; ++c) sums[c] += weight * value[c];
    }
  }
  for (int64_t h = 0; h < at.group; ++h) {
    std::copy_n(work.sums + h * e, e,
                at.Queries(core.out, at.value, at.first_head + h, query).data);
  }
}

}  // namespace

template <typename T>
void RunSingle(Exec& exec, const AttentionForwardCore<T, T>& core) {
  const size_t bytes = SingleScratch<T>(Layout(core.dims, core.part, 0), nullptr).bytes;
  ForEachTask(exec, core, bytes, [&](const Layout& at, std::byte* scratch) {
    CallRange([&](int64_t /*begin*/, int64_t /*end*/) { Attend(core, at, scratch); }, 0, 1);
  });
}

template void RunSingle(Exec&, const AttentionForwardCore<float, float>&);
template void RunSingle(Exec&, const AttentionForwardCore<double, double>&);

}  // namespace trainyard::cpu
