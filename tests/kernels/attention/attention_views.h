// Calls of attention.h on one packed tensor of query, key and value heads, as models make them.

#pragma once

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_part.h"

namespace trainyard::testing {

inline AttentionForwardArgs PackedForward(const ConstTensor& qkv, const AttentionDims& dims,
                                          const Tensor& out, const Tensor& lse) {
  const int64_t q = dims.query_columns(), k = dims.key_columns();
  return {.q = {qkv, 0, q},
          .k = {qkv, q, k},
          .v = {qkv, q + k, dims.value_columns()},
          .dims = dims,
          .out = out,
          .lse = lse};
}

struct AttentionResults {
  ConstTensor out, lse;
};
inline AttentionBackwardArgs PackedBackward(const ConstTensor& qkv, const AttentionDims& dims,
                                            const AttentionResults& results,
                                            const ConstTensor& dout, const Tensor& dqkv) {
  const int64_t q = dims.query_columns(), k = dims.key_columns();
  return {.q = {qkv, 0, q},
          .k = {qkv, q, k},
          .v = {qkv, q + k, dims.value_columns()},
          .out = results.out,
          .lse = results.lse,
          .dout = dout,
          .dims = dims,
          .dq = {dqkv, 0, q},
          .dk = {dqkv, q, k},
          .dv = {dqkv, q + k, dims.value_columns()}};
}

// Calls of attention_part.h, where q begins with the query heads and kv holds key heads, then value
// heads.
struct PackedPartForward {
  ConstTensor q, kv;
  AttentionDims dims;
  AttentionPart part;
  Tensor out, lse;
  Write write;
};
inline AttentionPartForwardArgs ViewsOf(const PackedPartForward& args) {
  const int64_t k = args.dims.key_columns(), v = args.dims.value_columns();
  return {.q = {args.q, 0, args.dims.query_columns()},
          .k = {args.kv, 0, k},
          .v = {args.kv, k, v},
          .dims = args.dims,
          .part = args.part,
          .out = args.out,
          .lse = args.lse,
          .write = args.write};
}

struct PackedPartBackward {
  ConstTensor q, kv, out, lse, dout;
  AttentionDims dims;
  AttentionPart part;
  Tensor dq, dkv;
  Write write_dq, write_dkv;
};
inline AttentionPartBackwardArgs ViewsOf(const PackedPartBackward& args) {
  const int64_t k = args.dims.key_columns(), v = args.dims.value_columns();
  return {.q = {args.q, 0, args.dims.query_columns()},
          .k = {args.kv, 0, k},
          .v = {args.kv, k, v},
          .out = args.out,
          .lse = args.lse,
          .dout = args.dout,
          .dims = args.dims,
          .part = args.part,
          .dq = args.dq,
          .dk = {args.dkv, 0, k},
          .dv = {args.dkv, k, v},
          .write_dq = args.write_dq,
          .write_dkv = args.write_dkv};
}

}  // namespace trainyard::testing
