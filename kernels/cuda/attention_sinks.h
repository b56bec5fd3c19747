// The sinks of attention (kernels/attention.h), beside kernels that compute attention without sinks.

#pragma once

#include "kernels/attention_core.h"
#include "kernels/device/exec.h"

namespace trainyard::cuda {

// Makes the results of attention without sinks those of attention with them:
//
//   lse'[i]   = log(exp(lse[i]) + exp(sink[h]))
//   out'[i,:] = out[i,:] exp(lse[i] - lse'[i])
//
// Backward without sinks then computes the gradients of queries, keys and values from out' and lse'.
// A head has whole packs of 16 bytes.
template <typename T>
void AddSinks(Exec& exec, const AttentionForwardCore<T, T>& core);

// Computes the gradient of the sinks. `deltas` is [sequences, heads, part.q_rows], the dot product
// of out and dout for each query.
template <typename T, typename O>
void SinkGradient(Exec& exec, const AttentionBackwardCore<T, O>& core, const Accumulate<T>* deltas);

// The same, where nobody has the deltas. `core` is the whole of a call, and a head has whole packs
// of 16 bytes.
template <typename T>
void SinkGradient(Exec& exec, const AttentionBackwardCore<T, T>& core);

}  // namespace trainyard::cuda
