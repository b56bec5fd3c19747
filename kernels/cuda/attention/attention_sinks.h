// Adds sinks (kernels/attention/attention.h) to the results of kernels that compute attention
// without sinks.

#pragma once

#include "kernels/attention/attention_core.h"
#include "kernels/device/exec.h"

namespace trainyard::cuda {

// Turns `out` and `lse` of attention without sinks into those of attention with sinks:
//
//   lse'[i]   = log(exp(lse[i]) + exp(sink[h]))
//   out'[i,:] = out[i,:] exp(lse[i] - lse'[i])
//
// A backward kernel without sinks computes the right gradients of queries, keys and values if it is
// given out' and lse'. `core` must be a whole call (attention.h), not a part. A head must have
// whole packs of 16 bytes.
template <typename T>
void AddSinks(Exec& exec, const AttentionForwardCore<T, T>& core);

// Computes the gradient of the sinks. `deltas` is [sequences, heads, part.q_rows], the dot product
// of out and dout for each query.
template <typename T, typename O>
void SinkGradient(Exec& exec, const AttentionBackwardCore<T, O>& core, const Accumulate<T>* deltas);

// Computes the deltas, then the gradient of the sinks. A head must have whole packs of 16 bytes.
template <typename T, typename O>
void SinkGradient(Exec& exec, const AttentionBackwardCore<T, O>& core);

}  // namespace trainyard::cuda
