// Logits, their targets and their softmax, as the kernels of the cross-entropy read them.

#pragma once

#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/cuda/failure.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/row.h"
#include "kernels/device/vocab_slice.h"

namespace trainyard::cuda {

struct Targets {
  const int32_t* ids;
  int64_t first, columns, vocab;  // The slice that logits have.
  int64_t held;                   // Columns before the padding.
  Failure fail = {};

  __device__ void Check(int64_t t) const {
    if (ids[t] >= -1 && ids[t] < vocab) return;
    fail("cross_entropy targets: target % at %, the vocabulary has % ids", ids[t], t, vocab);
  }
};

inline Targets TargetsOf(const ConstTensor& targets, const VocabSlice& slice, int64_t columns) {
  return {targets.as<int32_t>(), slice.first, columns, VocabOf(slice, columns),
          IdsOf(slice, columns)};
}

// Number of loads that a thread has in flight.
template <typename L>
constexpr int kAheadOf = 16 / int(sizeof(Accumulate<L>));

// exp(x) in two instructions, with a relative error below 2^-20 for |x| < 8. The result is 0 where
// exp(x) is less than any normal number.
__device__ inline float FastExp(float x) {
  constexpr float kLog2OfE = 1.4426950408889634f;
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * kLog2OfE));
  return y;
#else
  return std::exp2(x * kLog2OfE);
#endif
}

// f32 logits keep the accuracy of the library's exp, which takes more instructions.
template <typename L>
__device__ Accumulate<L> ExpOf(Accumulate<L> x) {
  if constexpr (std::is_same_v<L, bf16>) {
    return FastExp(x);
  } else {
    return std::exp(x);
  }
}

// A pack of kCount logits in registers.
template <typename L, int kCount>
using RowPack = HeldRow<L, kCount == kPackOf<L> ? 1 : 0>;

// The softmax of logits: the largest logit, and the sum of exp(logit - largest).
template <typename L>
struct Softmax {
  using A = Accumulate<L>;
  A largest = std::numeric_limits<A>::lowest();  // Less than any except minus infinity.
  A sum = 0;

  // That of the logits of all threads of the block. All threads must call it.
  __device__ Softmax OfBlock() const {
    const A of_all = BlockReduce(largest, Max(), std::numeric_limits<A>::lowest());
    return {of_all, BlockSum(sum * ExpOf<L>(largest - of_all))};
  }
};

// The softmax of this thread's part of a row's first `held` columns: of packs that are as far apart
// as the block has threads. Calls loaded(v, pack) for each pack, which has columns from v on.
template <int kCount, typename L, typename Loaded>
__device__ Softmax<L> SoftmaxOf(const L* row, int held, const Loaded& loaded) {
  using A = Accumulate<L>;
  constexpr int kAhead = kAheadOf<L>;
  const int whole = held / kCount * kCount;  // Columns in packs without padding.
  const int first = int(threadIdx.x) * kCount, stride = int(blockDim.x) * kCount;
  Softmax<L> softmax;
  if (kCount > 1 && int(threadIdx.x) < held - whole) {
    softmax = {A(row[whole + threadIdx.x]), A(1)};
  }
  for (int v = first; v < whole; v += kAhead * stride) {
    RowPack<L, kCount> packs[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (v + k * stride < whole) packs[k].Load(row, v + k * stride, 0);
    }
    A larger = softmax.largest;
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (v + k * stride >= whole) continue;
      // Passes over what is no number. Then the sum is none, either.
      for (int n = 0; n < kCount; ++n) larger = std::fmax(larger, packs[k].at(0, n));
    }
    softmax.sum *= ExpOf<L>(softmax.largest - larger);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (v + k * stride >= whole) continue;
      for (int n = 0; n < kCount; ++n) softmax.sum += ExpOf<L>(packs[k].at(0, n) - larger);
      loaded(v + k * stride, packs[k]);
    }
    softmax.largest = larger;
  }
  return softmax;
}

}  // namespace trainyard::cuda
