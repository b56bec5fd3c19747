#include "kernels/latent_heads.h"

#include <algorithm>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {
namespace {

// y = x, rotated by the angles of a row of the table. `sign` is -1 for the inverse.
template <typename X, typename T, typename A>
[[gnu::always_inline]] inline void Rotate(const X* x, T* y, const A* cos, const A* sin,
                                          int64_t half, A sign) {
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const A first = x[2 * i], second = x[2 * i + 1], s = sign * sin[i];
    y[2 * i] = T(first * cos[i] - second * s);
    y[2 * i + 1] = T(second * cos[i] + first * s);
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
      const A* cos = cos_table + t % sequence * half;
      const A* sin = sin_table + t % sequence * half;
      const T* q = q_data + t * heads * w.query();
      const T* kv = kv_data + t * heads * w.kv();
      T* query = qkv_data + t * width;
      T* key = query + heads * w.query();
      T* value = key + heads * w.query();
      const T* const rotated_key = key + w.nope;  // Of the first head; the others copy it.
      Rotate(rope_data + t * w.rope, key + w.nope, cos, sin, half, A(1));
      for (int64_t h = 0; h < heads; ++h) {
        std::copy_n(q, w.nope, query);
        Rotate(q + w.nope, query + w.nope, cos, sin, half, A(1));
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
      const A* cos = cos_table + t % sequence * half;
      const A* sin = sin_table + t % sequence * half;
      const T* dquery = dqkv_data + t * width;
      const T* dkey = dquery + heads * w.query();
      const T* dvalue = dkey + heads * w.query();
      T* dq = dq_data + t * heads * w.query();
      T* dkv = dkv_data + t * heads * w.kv();
      std::fill_n(sums, w.rope, A(0));
      for (int64_t h = 0; h < heads; ++h) {
        std::copy_n(dquery, w.nope, dq);
        Rotate(dquery + w.nope, dq + w.nope, cos, sin, half, A(-1));
        std::copy_n(dkey, w.nope, dkv);
        std::copy_n(dvalue, w.value, dkv + w.nope);
#pragma omp simd
        for (int64_t i = 0; i < w.rope; ++i) sums[i] += A(dkey[w.nope + i]);
        dq += w.query(), dkv += w.kv();
        dquery += w.query(), dkey += w.query(), dvalue += w.value;
      }
      Rotate(sums, drope_data + t * w.rope, cos, sin, half, A(-1));
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
