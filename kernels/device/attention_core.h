// Attention of some rows of queries over some rows of keys and values: what attention.h and
// attention_part.h come to, for the one core that each backend has for both.

#pragma once

#include "kernels/attention_part.h"

namespace trainyard {

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

// The heads of a packed [B S, (a+2g)d] tensor.
template <typename T>
struct PackedHeads {
  PackedHeads(T* data, const AttentionDims& dims)
      : row((dims.heads + 2 * dims.kv_heads) * dims.head_dim),
        q{data, row},
        k{data + dims.heads * dims.head_dim, row},
        v{data + (dims.heads + dims.kv_heads) * dims.head_dim, row} {}

  int64_t row;
  Heads<T> q, k, v;
};

inline AttentionPart WholeOf(const AttentionDims& dims) {
  return {.q_begin = 0,
          .q_rows = dims.sequence,
          .kv_begin = 0,
          .kv_rows = dims.sequence,
          .causal = true};
}

template <typename T>
AttentionForwardCore<T, T> CoreOf(const AttentionForwardArgs& args) {
  const PackedHeads qkv(args.qkv.as<T>(), args.dims);
  return {.sequences = args.qkv.shape.rows() / args.dims.sequence,
          .dims = args.dims,
          .part = WholeOf(args.dims),
          .q = qkv.q,
          .k = qkv.k,
          .v = qkv.v,
          .out = {args.out.as<T>(), args.out.shape.back()},
          .lse = args.lse.as<Accumulate<T>>(),
          .write = Write::kOverwrite};
}

template <typename T>
AttentionBackwardCore<T, T> CoreOf(const AttentionBackwardArgs& args) {
  const PackedHeads qkv(args.qkv.as<T>(), args.dims);
  const PackedHeads dqkv(args.dqkv.as<T>(), args.dims);
  return {.sequences = args.qkv.shape.rows() / args.dims.sequence,
          .dims = args.dims,
          .part = WholeOf(args.dims),
          .q = qkv.q,
          .k = qkv.k,
          .v = qkv.v,
          .out = {args.out.as<T>(), args.out.shape.back()},
          .dout = {args.dout.as<T>(), args.dout.shape.back()},
          .lse = args.lse.as<Accumulate<T>>(),
          .dq = dqkv.q,
          .dk = dqkv.k,
          .dv = dqkv.v,
          .write_dq = Write::kOverwrite,
          .write_dkv = Write::kOverwrite};
}

template <typename T>
AttentionForwardCore<T, Accumulate<T>> CoreOf(const AttentionPartForwardArgs& args) {
  using A = Accumulate<T>;
  const T* kv = args.kv.as<T>();
  const int64_t kv_row = args.kv.shape.back();
  return {.sequences = args.q.shape.rows() / args.dims.sequence,
          .dims = args.dims,
          .part = args.part,
          .q = {args.q.as<T>(), args.q.shape.back()},
          .k = {kv, kv_row},
          .v = {kv + kv_row / 2, kv_row},
          .out = {args.out.as<A>(), args.out.shape.back()},
          .lse = args.lse.as<A>(),
          .write = args.write};
}

template <typename T>
AttentionBackwardCore<T, Accumulate<T>> CoreOf(const AttentionPartBackwardArgs& args) {
  using A = Accumulate<T>;
  const T* kv = args.kv.as<T>();
  A* dkv = args.dkv.as<A>();
  const int64_t kv_row = args.kv.shape.back();
  return {.sequences = args.q.shape.rows() / args.dims.sequence,
          .dims = args.dims,
          .part = args.part,
          .q = {args.q.as<T>(), args.q.shape.back()},
          .k = {kv, kv_row},
          .v = {kv + kv_row / 2, kv_row},
          .out = {args.out.as<T>(), args.out.shape.back()},
          .dout = {args.dout.as<T>(), args.dout.shape.back()},
          .lse = args.lse.as<A>(),
          .dq = {args.dq.as<A>(), args.dq.shape.back()},
          .dk = {dkv, kv_row},
          .dv = {dkv + kv_row / 2, kv_row},
          .write_dq = args.write_dq,
          .write_dkv = args.write_dkv};
}

}  // namespace trainyard
