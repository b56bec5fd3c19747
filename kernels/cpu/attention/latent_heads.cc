#include "kernels/attention/latent_heads.h"

#include <algorithm>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {
namespace {

// A row of the table. The sign is -1 for the inverse.
template <typename A>
struct Turn {
  const A* cos;
  const A* sin;
  int64_t half;
  A sign;
};

// y = x, with its pairs rotated.
template <typename X, typename T, typename A>
[[gnu::always_inline]] inline void Rotate(const X* x, T* y, const Turn<A>& turn) {
#pragma omp simd
  for (int64_t i = 0; i < turn.half; ++i) {
    const A first = x[2 * i], second = x[2 * i + 1], s = turn.sign * turn.sin[i];
    y[2 * i] = T(first * turn.cos[i] - second * s);
    y[2 * i + 1] = T(second * turn.cos[i] + first * s);
  }
}

template <typename T>
void Forward(const Exec& exec, const LatentHeadsForwardArgs& args) {
  using A = Accumulate<T>;
  const LatentWidths w = LatentWidthsOf(args.heads, args.q, args.kv, args.k_rope);
  const int64_t heads = args.heads, half = w.rope / 2, width = args.qkv.shape.back();
  const int64_t sequence = args.sequence;
  const T *q_data = args.q.as<T>(), *kv_data = args.kv.as<T>(), *rope_data = args.k_rope.as<T>();
  const A *cos_table = args.cos.as<A>(), *sin_table = args.sin.as<A>();
  T* const qkv_data = args.qkv.as<T>();
  ParallelRows(exec, args.q.shape.rows(), width, [=](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t row = t % sequence * half;
      const Turn<A> turn = {cos_table + row, sin_table + row, half, A(1)};
      const T* q = q_data + t * heads * w.query();
      const T* kv = kv_data + t * heads * w.kv();
      T* query = qkv_data + t * width;
      T* key = query + heads * w.query();
      T* value = key + heads * w.query();
      const T* const rotated_key = key + w.nope;  // Of the first head; the others copy it.
      Rotate(rope_data + t * w.rope, key + w.nope, turn);
      for (int64_t h = 0; h < heads; ++h) {
        std::copy_n(q, w.nope, query);
        Rotate(q + w.nope, query + w.nope, turn);
        std::copy_n(kv, w.nope, key);
        if (h > 0) std::copy_n(rotated_key, w.rope, key + w.nope);
        std::copy_n(kv + w.nope, w.value, value);
        q += w.query(), kv += w.kv();
        query += w.query(), key += w.query(), value += w.value;
      }
    }
  });
}

template <typename T>
void Backward(const Exec& exec, const LatentHeadsBackwardArgs& args) {
  using A = Accumulate<T>;
  const LatentWidths w = LatentWidthsOf(args.heads, args.dq, args.dkv, args.dk_rope);
  const int64_t heads = args.heads, half = w.rope / 2, width = args.dqkv.shape.back();
  const int64_t sequence = args.sequence;
  const T* const dqkv_data = args.dqkv.as<T>();
  const A *cos_table = args.cos.as<A>(), *sin_table = args.sin.as<A>();
  T *const dq_data = args.dq.as<T>(), *const dkv_data = args.dkv.as<T>();
  T* const drope_data = args.dk_rope.as<T>();
  ParallelRows(exec, args.dqkv.shape.rows(), width, [=](int64_t begin, int64_t end) {
    A sums[kMaxLatentRope];
    for (int64_t t = begin; t < end; ++t) {
      const int64_t row = t % sequence * half;
      const Turn<A> turn = {cos_table + row, sin_table + row, half, A(-1)};
      const T* dquery = dqkv_data + t * width;
      const T* dkey = dquery + heads * w.query();
      const T* dvalue = dkey + heads * w.query();
      T* dq = dq_data + t * heads * w.query();
      T* dkv = dkv_data + t * heads * w.kv();
      std::fill_n(sums, w.rope, A(0));
      for (int64_t h = 0; h < heads; ++h) {
        std::copy_n(dquery, w.nope, dq);
        Rotate(dquery + w.nope, dq + w.nope, turn);
        std::copy_n(dkey, w.nope, dkv);
        std::copy_n(dvalue, w.value, dkv + w.nope);
#pragma omp simd
        for (int64_t i = 0; i < w.rope; ++i) sums[i] += A(dkey[w.nope + i]);
        dq += w.query(), dkv += w.kv();
        dquery += w.query(), dkey += w.query(), dvalue += w.value;
      }
      Rotate(sums, drope_data + t * w.rope, turn);
    }
  });
}

}  // namespace

void LatentHeadsForward(Exec& exec, const LatentHeadsForwardArgs& args) {
  DispatchFloat(args.q.dtype, [&](auto scalar) { Forward<decltype(scalar)>(exec, args); });
}

void LatentHeadsBackward(Exec& exec, const LatentHeadsBackwardArgs& args) {
  DispatchFloat(args.dqkv.dtype, [&](auto scalar) { Backward<decltype(scalar)>(exec, args); });
}

}  // namespace trainyard::cpu
