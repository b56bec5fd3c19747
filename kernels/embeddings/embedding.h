// Looks up rows of a table by index, for tokens and for learned positions (positions.h). The table
// may be a slice of the vocabulary: rows of other ids are zeroes, so that the ranks' outputs can be
// summed.
//
//   y[t,:] = scale table[tokens[t] - first,:], or 0 if the table does not have tokens[t]
//   dtable[v,:] += sum over t with tokens[t] = first + v of scale dy[t,:]
//
// `scale` is rounded to the dtype of y, as in Gemma's implementations. The row of the token
// `padding` gets no gradient, as in PyTorch's nn.Embedding with a padding_idx.
//
// Letters: T tokens, V rows of the table, D width. A token outside the whole vocabulary is a
// programmer error that names it. Backward adds in the order of t, in the dtype of dtable: bitwise
// deterministic for any thread count.

#pragma once

#include "kernels/device/vocab_slice.h"

namespace trainyard {

struct EmbeddingForwardArgs {
  ConstTensor table;      // [V, D]  f64 | f32 | bf16
  ConstTensor tokens;     // [T]     i32
  Tensor y;               // [T, D]  out, dtype of table, or on CPUs f32 of a table in bf16
  VocabSlice slice = {};  // the slice that the table has
  double scale = 1;
};

struct EmbeddingBackwardArgs {
  ConstTensor dy;      // [T, D]  f64 | f32 | bf16
  ConstTensor tokens;  // [T]     i32
  Tensor dtable;       // [V, D]  in/out, f32 (f64 when dy is f64)
  Write write;         // kOverwrite: all of dtable is zeroed first
  VocabSlice slice = {};
  double scale = 1;
  int64_t padding = -1;  // -1: no token is left out
};

inline void Check(const EmbeddingForwardArgs& args) {
  const int64_t d = ExpectColumns("embedding table", args.table);
  ExpectFloat("embedding table", args.table);
  ExpectElements("embedding tokens", args.tokens, DType::kI32, args.tokens.elements());
  ExpectDType("embedding y", args.y, {args.table.dtype, AccumulateOfDType(args.table.dtype)});
  ExpectMatrix("embedding y", args.y, args.y.dtype, args.tokens.elements(), d);
  ExpectSlice("embedding slice", args.slice, args.table.shape.rows());
}

inline void Check(const EmbeddingBackwardArgs& args) {
  const int64_t d = ExpectColumns("embedding dy", args.dy);
  ExpectFloat("embedding dy", args.dy);
  ExpectElements("embedding tokens", args.tokens, DType::kI32, args.dy.shape.rows());
  ExpectColumns("embedding dtable", args.dtable);
  ExpectMatrix("embedding dtable", args.dtable, AccumulateOfDType(args.dy.dtype),
               args.dtable.shape.rows(), d);
  ExpectSlice("embedding slice", args.slice, args.dtable.shape.rows());
}

}  // namespace trainyard
