// Plain attention (IsPlain), without sinks, over one packed projection: the form of attention.h
// that libraries are called with.

#pragma once

#include <optional>

#include "kernels/attention/attention.h"

namespace trainyard::cuda {

struct PackedAttentionForwardArgs {
  ConstTensor qkv;  // [B S, (a+g)d + ge]  heads in the order query, key, value
  AttentionDims dims;
  Tensor out;  // [B S, a e]
  Tensor lse;  // [B, a, S]
};

struct PackedAttentionBackwardArgs {
  ConstTensor qkv;   // [B S, (a+g)d + ge]  the forward input
  ConstTensor out;   // [B S, a e]          the forward output
  ConstTensor lse;   // [B, a, S]           the forward output
  ConstTensor dout;  // [B S, a e]
  AttentionDims dims;
  Tensor dqkv;  // [B S, (a+g)d + ge]  out
  bool deterministic = true;
};

// Returns the packed tensor whose columns the views are, in the order query, key, value. Returns
// nullopt if there is no such tensor.
template <typename AnyTensor, typename View>
std::optional<AnyTensor> PackedTensor(const View& q, const View& k, const View& v) {
  const auto begins = [&](const View& view, int64_t column) {
    return view.stride == q.stride &&
           static_cast<const std::byte*>(view.data) ==
               static_cast<const std::byte*>(q.data) + size_t(column) * SizeOf(q.dtype);
  };
  const int64_t columns = q.columns + k.columns + v.columns;
  if (q.stride != columns || !begins(k, q.columns) || !begins(v, q.columns + k.columns)) return {};
  AnyTensor packed;
  packed.data = q.data;
  packed.dtype = q.dtype;
  packed.shape = {q.rows, columns};
  return packed;
}

// Returns the same call on packed tensors, or nullopt if the call has another form.
inline std::optional<PackedAttentionForwardArgs> PackedOf(const AttentionForwardArgs& args) {
  if (!IsPlain(args)) return {};
  const auto qkv = PackedTensor<ConstTensor>(args.q, args.k, args.v);
  if (!qkv.has_value()) return {};
  return PackedAttentionForwardArgs{
      .qkv = *qkv, .dims = args.dims, .out = args.out, .lse = args.lse};
}
inline std::optional<PackedAttentionBackwardArgs> PackedOf(const AttentionBackwardArgs& args) {
  if (!IsPlain(args)) return {};
  const auto qkv = PackedTensor<ConstTensor>(args.q, args.k, args.v);
  const auto dqkv = PackedTensor<Tensor>(args.dq, args.dk, args.dv);
  if (!qkv.has_value() || !dqkv.has_value()) return {};
  return PackedAttentionBackwardArgs{.qkv = *qkv,
                                     .out = args.out,
                                     .lse = args.lse,
                                     .dout = args.dout,
                                     .dims = args.dims,
                                     .dqkv = *dqkv,
                                     .deterministic = args.deterministic};
}

// The inverse: views of the packed tensors.
inline AttentionForwardArgs ViewsOf(const PackedAttentionForwardArgs& args) {
  const int64_t a = args.dims.query_columns(), g = args.dims.key_columns();
  const int64_t e = args.dims.value_columns();
  return {.q = {args.qkv, 0, a},
          .k = {args.qkv, a, g},
          .v = {args.qkv, a + g, e},
          .dims = args.dims,
          .out = args.out,
          .lse = args.lse};
}
inline AttentionBackwardArgs ViewsOf(const PackedAttentionBackwardArgs& args) {
  const int64_t a = args.dims.query_columns(), g = args.dims.key_columns();
  const int64_t e = args.dims.value_columns();
  return {.q = {args.qkv, 0, a},
          .k = {args.qkv, a, g},
          .v = {args.qkv, a + g, e},
          .out = args.out,
          .lse = args.lse,
          .dout = args.dout,
          .dims = args.dims,
          .dq = {args.dqkv, 0, a},
          .dk = {args.dqkv, a, g},
          .dv = {args.dqkv, a + g, e},
          .deterministic = args.deterministic};
}

}  // namespace trainyard::cuda
