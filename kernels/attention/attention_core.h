// Attention of some rows of queries over some rows of keys and values. Each backend has one such
// core, which serves attention.h and attention_part.h.

#pragma once

#include "kernels/attention/attention_part.h"

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

// AttentionDropout with the samples of the rows. Null: none.
struct Dropping {
  const int32_t* samples = nullptr;
  DropoutPlace place = {};
  int64_t first_head = 0;
  int64_t heads = 0;
  int64_t sequence = 0;
  const StepState* state = nullptr;
};

// The dropout of one query head in one sequence.
struct HeadDropout {
  DropoutKey key = {};
  uint64_t sequence = 0;
  uint64_t first = 0;  // The number of the element of the positions 0 and 0.

  // `row` is any row of the sequence, and `head` counts this rank's heads.
  TRAINYARD_HOST_DEVICE HeadDropout(const Dropping& of, int64_t row, int64_t head) {
    if (of.samples == nullptr) return;
    key = DropoutKey(of.place, *of.state);
    sequence = uint64_t(of.sequence);
    first = uint64_t(of.samples[row] * of.heads + of.first_head + head) * sequence * sequence;
  }
  TRAINYARD_HOST_DEVICE bool active() const { return key.threshold != 0; }
  // The element of a query and the key at position 0.
  TRAINYARD_HOST_DEVICE uint64_t RowOf(int64_t query_position) const {
    return first + uint64_t(query_position) * sequence;
  }
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
  Dropping dropout;
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
  Dropping dropout;
  const Accumulate<T>* lse;
  Heads<O> dq, dk, dv;
  Write write_dq;
  Write write_dkv;        // of dk and dv
  Accumulate<T>* dsinks;  // Null: none.
  Write write_dsinks;
  bool deterministic;
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

template <typename Args>
Dropping DroppingOf(const Args& args) {
  const AttentionDropout& dropout = args.dropout;
  return {.samples = DataOf<int32_t>(args.samples),
          .place = dropout.place,
          .first_head = dropout.first_head,
          .heads = dropout.heads,
          .sequence = dropout.sequence,
          .state = args.state};
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
          .dropout = DroppingOf(args),
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
          .dropout = DroppingOf(args),
          .lse = args.lse.template as<Accumulate<T>>(),
          .dq = HeadsOf<O>(args.dq),
          .dk = HeadsOf<O>(args.dk),
          .dv = HeadsOf<O>(args.dv),
          .write_dq = writes.dq,
          .write_dkv = writes.dkv,
          .dsinks = DataOf<Accumulate<T>>(args.dsinks),
          .write_dsinks = args.write_dsinks,
          .deterministic = args.deterministic};
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
