// Attention of some rows of queries over some rows of keys and values. Each backend has one such
// core, which serves attention.h and attention_part.h.

#pragma once

#include "kernels/attention_part.h"

namespace trainyard {

// Heads that lie side by side in the rows of a tensor.
template <typename T>
struct Heads {
  T* data;      // the first row's first head
  int64_t row;  // elements from row to row
};

// The documents of the queries' rows, [sequences, sequence]. Null: no limit besides the part's
// mask.
struct Documents {
  const int32_t* begins = nullptr;
  const int32_t* ends = nullptr;
};

// T is the dtype of the inputs, and O that of the outputs, which are rounded to O once.
template <typename T, typename O>
struct AttentionForwardCore {
  int64_t sequences;
  AttentionDims dims;
  AttentionPart part;
  Heads<const T> q, k, v;
  const T* sinks;  // Null: none.
  Documents documents;
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
  const T* sinks;  // Null: none.
  Documents documents;
  const Accumulate<T>* lse;
  Heads<O> dq, dk, dv;
  Write write_dq;
  Write write_dkv;        // of dk and dv
  Accumulate<T>* dsinks;  // Null: none.
  Write write_dsinks;
};

template <typename T>
Heads<const T> HeadsOf(const ConstMatrixView& view) {
  return {view.as<T>(), view.stride};
}
template <typename T>
Heads<T> HeadsOf(const MatrixView& view) {
  return {view.as<T>(), view.stride};
}
template <typename T>
Heads<T> HeadsOf(const Tensor& tensor) {
  return {tensor.as<T>(), tensor.shape.back()};
}
template <typename T>
Heads<const T> HeadsOf(const ConstTensor& tensor) {
  return {tensor.as<T>(), tensor.shape.back()};
}
// Null if there is no data.
template <typename T, typename AnyTensor>
auto DataOf(const AnyTensor& tensor) {
  return tensor.data == nullptr ? nullptr : tensor.template as<T>();
}
template <typename Args>
Documents DocumentsOf(const Args& args) {
  return {DataOf<int32_t>(args.document_begins), DataOf<int32_t>(args.document_ends)};
}

inline AttentionPart WholeOf(const AttentionDims& dims) {
  return {.q_begin = 0,
          .q_rows = dims.sequence,
          .kv_begin = 0,
          .kv_rows = dims.sequence,
          .mask = dims.mask};
}

// Makes the core of a forward call, whole or in parts.
template <typename T, typename O, typename Args>
AttentionForwardCore<T, O> ForwardCoreOf(const Args& args, const AttentionPart& part, Write write) {
  return {.sequences = args.q.rows / args.dims.sequence,
          .dims = args.dims,
          .part = part,
          .q = HeadsOf<T>(args.q),
          .k = HeadsOf<T>(args.k),
          .v = HeadsOf<T>(args.v),
          .sinks = DataOf<T>(args.sinks),
          .documents = DocumentsOf(args),
          .out = HeadsOf<O>(args.out),
          .lse = args.lse.template as<Accumulate<T>>(),
          .write = write};
}

struct BackwardWrites {
  Write dq;
  Write dkv;
};
template <typename T, typename O, typename Args>
AttentionBackwardCore<T, O> BackwardCoreOf(const Args& args, const AttentionPart& part,
                                           const BackwardWrites& writes) {
  return {.sequences = args.q.rows / args.dims.sequence,
          .dims = args.dims,
          .part = part,
          .q = HeadsOf<T>(args.q),
          .k = HeadsOf<T>(args.k),
          .v = HeadsOf<T>(args.v),
          .out = HeadsOf<T>(args.out),
          .dout = HeadsOf<T>(args.dout),
          .sinks = DataOf<T>(args.sinks),
          .documents = DocumentsOf(args),
          .lse = args.lse.template as<Accumulate<T>>(),
          .dq = HeadsOf<O>(args.dq),
          .dk = HeadsOf<O>(args.dk),
          .dv = HeadsOf<O>(args.dv),
          .write_dq = writes.dq,
          .write_dkv = writes.dkv,
          .dsinks = DataOf<Accumulate<T>>(args.dsinks),
          .write_dsinks = args.write_dsinks};
}

template <typename T>
AttentionForwardCore<T, T> CoreOf(const AttentionForwardArgs& args) {
  return ForwardCoreOf<T, T>(args, WholeOf(args.dims), Write::kOverwrite);
}
template <typename T>
AttentionBackwardCore<T, T> CoreOf(const AttentionBackwardArgs& args) {
  return BackwardCoreOf<T, T>(args, WholeOf(args.dims), {Write::kOverwrite, Write::kOverwrite});
}
template <typename T>
AttentionForwardCore<T, Accumulate<T>> CoreOf(const AttentionPartForwardArgs& args) {
  return ForwardCoreOf<T, Accumulate<T>>(args, args.part, args.write);
}
template <typename T>
AttentionBackwardCore<T, Accumulate<T>> CoreOf(const AttentionPartBackwardArgs& args) {
  return BackwardCoreOf<T, Accumulate<T>>(args, args.part, {args.write_dq, args.write_dkv});
}

}  // namespace trainyard
