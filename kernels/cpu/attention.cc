// The whole of each sequence is one part, and all heads lie in one tensor. See attention_core.cc.

#include "kernels/attention.h"

#include "kernels/cpu/attention_core.h"
#include "kernels/cpu/kernels.h"

namespace trainyard::cpu {
namespace {

AttentionPart WholeOf(const AttentionDims& dims) {
  return {.q_begin = 0,
          .q_rows = dims.sequence,
          .kv_begin = 0,
          .kv_rows = dims.sequence,
          .causal = true};
}

// The heads of a packed [B S, (a+2g)d] tensor.
template <typename T>
struct Packed {
  Packed(T* data, const AttentionDims& dims)
      : row((dims.heads + 2 * dims.kv_heads) * dims.head_dim),
        q{data, row},
        k{data + dims.heads * dims.head_dim, row},
        v{data + (dims.heads + dims.kv_heads) * dims.head_dim, row} {}

  int64_t row;
  Heads<T> q, k, v;
};

}  // namespace

void AttentionForward(Exec& exec, const AttentionForwardArgs& args) {
  DispatchFloat(args.qkv.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const Packed qkv(args.qkv.as<T>(), args.dims);
    Run(exec, AttentionForwardCore<T, T>{.sequences = args.qkv.shape.rows() / args.dims.sequence,
                                         .dims = args.dims,
                                         .part = WholeOf(args.dims),
                                         .q = qkv.q,
                                         .k = qkv.k,
                                         .v = qkv.v,
                                         .out = {args.out.as<T>(), args.out.shape.back()},
                                         .lse = args.lse.as<Accumulate<T>>(),
                                         .write = Write::kOverwrite});
  });
}

void AttentionBackward(Exec& exec, const AttentionBackwardArgs& args) {
  DispatchFloat(args.qkv.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const Packed qkv(args.qkv.as<T>(), args.dims);
    const Packed dqkv(args.dqkv.as<T>(), args.dims);
    Run(exec, AttentionBackwardCore<T, T>{.sequences = args.qkv.shape.rows() / args.dims.sequence,
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
                                          .write_dkv = Write::kOverwrite});
  });
}

}  // namespace trainyard::cpu
