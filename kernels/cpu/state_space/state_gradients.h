// What the backward passes of state_scan.h and state_ends.h share: the gradients of steps, and of
// the parameters that the tokens of all parts share.

#pragma once

#include "kernels/cpu/state_space/state_chunk.h"
#include "kernels/device/tensor.h"

namespace trainyard::cpu {

// Sums over the tokens of a part, for a head.
template <typename A>
struct HeadSums {
  A dt_bias, a_log, d;
};

// The gradients of a chunk's a (the log of the decay), and of its steps where they multiply x.
template <typename A>
struct StepTerms {
  const A *da, *dstep;
};

// Writes ddt of a chunk, and adds to the sums.
template <typename T, typename A>
void StoreStepGradients(const StateChunk& chunk, const StateSteps<A>& steps,
                        const StepTerms<A>& terms, T* ddt, HeadSums<A>& sums) {
  const int64_t heads = chunk.at.dims.heads;
  T* to = ddt + chunk.row * heads + steps.head;
  for (int64_t t = 0; t < chunk.count; ++t, to += heads) {
    const A d = (terms.dstep[t] + steps.decay * terms.da[t]) * steps.slope[t];
    *to = T(d);
    sums.dt_bias += d;
    sums.a_log += terms.da[t] * steps.decay * steps.step[t];
  }
}

// dxbc[t, column + n] = rows[t, n] + across[n, t] for a chunk's tokens: the gradients of B or C.
template <typename T, typename A>
void StoreGroupGradient(const StateChunk& chunk, const A* rows, const A* across, int64_t column,
                        T* dxbc) {
  const StateTask& at = chunk.at;
  for (int64_t t = 0; t < chunk.count; ++t) {
    T* const to = dxbc + (chunk.row + t) * at.dims.columns() + column;
    for (int64_t n = 0; n < at.dims.state; ++n) {
      to[n] = T(rows[t * at.states + n] + across[n * at.tokens + t]);
    }
  }
}

// Memory for the sums of all parts, [M, H], filled with zeros.
template <typename A>
HeadSums<A>* ReserveSums(Exec& exec, const StateDims& dims, int64_t parts) {
  const size_t count = size_t(parts * dims.heads);
  auto* const sums =
      reinterpret_cast<HeadSums<A>*>(ContextOf(exec).shared.Reserve(count * sizeof(HeadSums<A>)));
  std::fill_n(sums, count, HeadSums<A>{});
  return sums;
}

// Stores one of the sums, over all parts, to a gradient [H].
template <typename A>
void StoreSums(const HeadSums<A>* sums, int64_t parts, A HeadSums<A>::*member, const Tensor& to,
               Write write) {
  A* const gradient = to.as<A>();
  const int64_t heads = to.elements();
  for (int64_t h = 0; h < heads; ++h) {
    A sum = write == Write::kAdd ? gradient[h] : A(0);
    for (int64_t part = 0; part < parts; ++part) sum += sums[part * heads + h].*member;
    gradient[h] = sum;
  }
}

}  // namespace trainyard::cpu
