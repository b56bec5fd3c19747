// Attention of some rows of queries over some rows of keys and values: the core of attention.h and
// attention_part.h.

#pragma once

#include "kernels/attention_part.h"
#include "kernels/device/exec.h"

namespace trainyard::cpu {

// Heads within the rows of a tensor, side by side.
template <typename T>
struct Heads {
  T* data;      // the first row's first head
  int64_t row;  // elements from row to row
};

// T is the dtype of the inputs, O of the outputs, which are rounded to it once.
template <typename T, typename O>
struct AttentionForwardCore {
  int64_t sequences;
  AttentionDims dims;
  AttentionPart part;
  Heads<const T> q, k, v;
  Heads<O> out;
  Accumulate<T>* lse;  // [sequences, heads, sequence]
  Write write;
};

template <typename T, typename O>
struct AttentionBackwardCore {
  int64_t sequences;
  AttentionDims dims;
  AttentionPart part;
  Heads<const T> q, k, v, out, dout;
  const Accumulate<T>* lse;
  Heads<O> dq, dk, dv;
  Write write_dq;
  Write write_dkv;  // of dk and dv
};

// Instantiated for O equal to T, and to Accumulate<T>.
template <typename T, typename O>
void Run(Exec& exec, const AttentionForwardCore<T, O>& core);
template <typename T, typename O>
void Run(Exec& exec, const AttentionBackwardCore<T, O>& core);

}  // namespace trainyard::cpu
