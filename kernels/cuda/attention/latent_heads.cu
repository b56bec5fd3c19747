// Bound by memory. A warp has a head of a token at a time, and a block all heads of a token, so
// that the block can sum the gradient of the key's shared part without a second kernel.

#include "kernels/attention/latent_heads.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/row.h"
#include "kernels/cuda/rows.h"

namespace trainyard::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

// A row of the table. The sign is -1 for the inverse.
template <typename A>
struct Turn {
  const A* cos;
  const A* sin;
  int64_t half;
  A sign;
};

template <typename A>
struct Table {
  const A* cos;
  const A* sin;
  int64_t half, sequence;
  __device__ Turn<A> At(int64_t t, A sign) const {
    const int64_t row = uint32_t(t) % uint32_t(sequence) * half;  // No batch has 2^32 tokens.
    return {cos + row, sin + row, half, sign};
  }
};

// A warp copies `count` elements, kCount at once. A head is so short that most loops take one step.
template <int kCount, typename T>
__device__ void CopyByWarp(const T* from, T* to, int64_t count, int lane) {
  if constexpr (kCount == 1) {
#pragma unroll 1
    for (int64_t i = lane; i < count; i += kWarp) to[i] = from[i];
  } else {
    const auto* const words = reinterpret_cast<const Words*>(from);
#pragma unroll 1
    for (int64_t i = lane; i < count / kCount; i += kWarp) {
      reinterpret_cast<Words*>(to)[i] = words[i];
    }
  }
}

// A warp rotates the pairs of a head: those of kCount elements at once, or each by itself.
template <int kCount, typename X, typename T, typename A>
__device__ void RotateByWarp(const X* x, T* y, const Turn<A>& turn, int lane) {
  constexpr int kPairs = std::max(1, kCount / 2);
#pragma unroll 1
  for (int64_t i = int64_t(lane) * kPairs; i < turn.half; i += kWarp * kPairs) {
    const auto cos = LoadPack<A, kPairs>(turn.cos + i), sin = LoadPack<A, kPairs>(turn.sin + i);
    if constexpr (kCount == 1) {
      const A first = A(x[2 * i]), second = A(x[2 * i + 1]), s = turn.sign * sin.v[0];
      y[2 * i] = T(first * cos.v[0] - second * s);
      y[2 * i + 1] = T(second * cos.v[0] + first * s);
    } else {
      const auto from = LoadPack<X, kCount>(x + 2 * i);
      Pack<T, kCount> rotated;
      for (int n = 0; n < kPairs; ++n) {
        const A first = A(from.v[2 * n]), second = A(from.v[2 * n + 1]), s = turn.sign * sin.v[n];
        rotated.v[2 * n] = T(first * cos.v[n] - second * s);
        rotated.v[2 * n + 1] = T(second * cos.v[n] + first * s);
      }
      StoreRow(y + 2 * i, rotated);
    }
  }
}

template <typename T>
struct Forward {
  const T* q;
  const T* kv;
  const T* k_rope;
  T* qkv;
  Table<Accumulate<T>> table;
  LatentWidths w;
  int64_t heads, rows;
};

template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads) ForwardKernel(Forward<T> args) {
  using A = Accumulate<T>;
  const LatentWidths& w = args.w;
  const int lane = int(threadIdx.x) % kWarp;
  const int64_t width = args.heads * (2 * w.query() + w.value);
  for (int64_t t = blockIdx.x; t < args.rows; t += gridDim.x) {
    const Turn<A> turn = args.table.At(t, A(1));
    T* const of_row = args.qkv + t * width;
    for (int64_t h = int(threadIdx.x) / kWarp; h < args.heads; h += kWarps) {
      const T* const q = args.q + (t * args.heads + h) * w.query();
      const T* const kv = args.kv + (t * args.heads + h) * w.kv();
      T* const query = of_row + h * w.query();
      T* const key = query + args.heads * w.query();
      T* const value = of_row + 2 * args.heads * w.query() + h * w.value;
      CopyByWarp<kCount>(q, query, w.nope, lane);
      RotateByWarp<kCount>(q + w.nope, query + w.nope, turn, lane);
      CopyByWarp<kCount>(kv, key, w.nope, lane);
      RotateByWarp<kCount>(args.k_rope + t * w.rope, key + w.nope, turn, lane);
      CopyByWarp<kCount>(kv + w.nope, value, w.value, lane);
    }
  }
}

template <typename T>
struct Backward {
  const T* dqkv;
  T* dq;
  T* dkv;
  T* dk_rope;
  Table<Accumulate<T>> table;
  LatentWidths w;
  int64_t heads, rows;
};

template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads) BackwardKernel(Backward<T> args) {
  using A = Accumulate<T>;
  __shared__ Pack<A, kCount> sums[kMaxLatentRope / kCount];
  const LatentWidths& w = args.w;
  const int lane = int(threadIdx.x) % kWarp;
  const int64_t width = args.heads * (2 * w.query() + w.value);
  for (int64_t t = blockIdx.x; t < args.rows; t += gridDim.x) {
    const Turn<A> turn = args.table.At(t, A(-1));
    const T* const of_row = args.dqkv + t * width;
    for (int64_t h = int(threadIdx.x) / kWarp; h < args.heads; h += kWarps) {
      const T* const dquery = of_row + h * w.query();
      const T* const dkey = dquery + args.heads * w.query();
      const T* const dvalue = of_row + 2 * args.heads * w.query() + h * w.value;
      T* const dq = args.dq + (t * args.heads + h) * w.query();
      T* const dkv = args.dkv + (t * args.heads + h) * w.kv();
      CopyByWarp<kCount>(dquery, dq, w.nope, lane);
      RotateByWarp<kCount>(dquery + w.nope, dq + w.nope, turn, lane);
      CopyByWarp<kCount>(dkey, dkv, w.nope, lane);
      CopyByWarp<kCount>(dvalue, dkv + w.nope, w.value, lane);
    }
    // In the order of heads, whatever the number of warps.
    const T* const dkeys = of_row + args.heads * w.query() + w.nope;
    for (int64_t i = int64_t(threadIdx.x) * kCount; i < w.rope; i += kThreads * kCount) {
      Pack<A, kCount> sum = {};
#pragma unroll 4
      for (int64_t h = 0; h < args.heads; ++h) {
        const auto dkey = LoadPack<T, kCount>(dkeys + h * w.query() + i);
        for (int n = 0; n < kCount; ++n) sum.v[n] += A(dkey.v[n]);
      }
      sums[i / kCount] = sum;
    }
    __syncthreads();
    if (threadIdx.x < kWarp) {
      RotateByWarp<kCount>(sums[0].v, args.dk_rope + t * w.rope, turn, lane);
    }
    __syncthreads();  // Before the sums of the next token are written.
  }
}

template <typename A, typename Args>
Table<A> TableOf(const Args& args, const LatentWidths& w) {
  return {.cos = args.cos.template as<A>(),
          .sin = args.sin.template as<A>(),
          .half = w.rope / 2,
          .sequence = args.sequence};
}

// Whether all parts of heads begin at multiples of 16 bytes.
template <typename T, typename... Pointers>
bool CanPackHeads(const LatentWidths& w, const Pointers*... pointers) {
  return CanPack<T>(w.nope, pointers...) && CanPack<T>(w.rope) && CanPack<T>(w.value);
}

}  // namespace

void LatentHeadsForward(Exec& exec, const LatentHeadsForwardArgs& args) {
  DispatchFloat(args.q.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const LatentWidths w = LatentWidthsOf(args.heads, args.q, args.kv, args.k_rope);
    const Forward<T> forward = {.q = args.q.as<T>(),
                                .kv = args.kv.as<T>(),
                                .k_rope = args.k_rope.as<T>(),
                                .qkv = args.qkv.as<T>(),
                                .table = TableOf<Accumulate<T>>(args, w),
                                .w = w,
                                .heads = args.heads,
                                .rows = args.q.shape.rows()};
    const bool packs = CanPackHeads<T>(w, forward.q, forward.kv, forward.k_rope, forward.qkv,
                                       forward.table.cos, forward.table.sin);
    const auto kernel = packs ? ForwardKernel<T, kPackOf<T>> : ForwardKernel<T, 1>;
    Launch(exec, {RowBlocks(forward.rows), kThreads}, kernel, forward);
  });
}

void LatentHeadsBackward(Exec& exec, const LatentHeadsBackwardArgs& args) {
  DispatchFloat(args.dqkv.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const LatentWidths w = LatentWidthsOf(args.heads, args.dq, args.dkv, args.dk_rope);
    const Backward<T> backward = {.dqkv = args.dqkv.as<T>(),
                                  .dq = args.dq.as<T>(),
                                  .dkv = args.dkv.as<T>(),
                                  .dk_rope = args.dk_rope.as<T>(),
                                  .table = TableOf<Accumulate<T>>(args, w),
                                  .w = w,
                                  .heads = args.heads,
                                  .rows = args.dqkv.shape.rows()};
    const bool packs = CanPackHeads<T>(w, backward.dqkv, backward.dq, backward.dkv,
                                       backward.dk_rope, backward.table.cos, backward.table.sin);
    const auto kernel = packs ? BackwardKernel<T, kPackOf<T>> : BackwardKernel<T, 1>;
    Launch(exec, {RowBlocks(backward.rows), kThreads}, kernel, backward);
  });
}

}  // namespace trainyard::cuda
