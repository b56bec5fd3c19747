// The matrix product. Either operand may be transposed, and a bias may be added to each row:
//
//   c[m,n] = (write == kAdd ? c[m,n] : 0) + sum_k A[m,k] B[k,n] + bias[n]
//
//   A = a, or its transpose when trans_a; B likewise. A linear layer with weight w [N, K] is
//     forward          y  [T,N] = x  [T,K]   w^T   {.a = x, .b = w, .trans_b = true}
//     input gradient   dx [T,K] = dy [T,N]   w     {.a = dy, .b = w}
//     weight gradient  dw [N,K] = dy^T [N,T] x     {.a = dy, .b = x, .trans_a = true}
//
// Letters: M rows and N columns of the product, K summed elements. Leading dims of an operand count
// as rows. Sums are taken in f32 (f64 for f64). Deterministic for a given shape, thread count and
// device. Only CPUs multiply by a weight in fewer bits.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

struct MatMulArgs {
  ConstTensor a;          // [M, K], [K, M] when trans_a;  f64 | f32 | bf16
  ConstTensor b;          // [K, N], [N, K] when trans_b;  dtype of a, or as IsNarrowWeight says
  Tensor c;               // [M, N]  dtype of a, or f32 when a is bf16; aliases nothing
  ConstTensor bias = {};  // [N]  dtype of a; none if its data is null; only with kOverwrite
  bool trans_a = false;
  bool trans_b = false;
  Write write = Write::kOverwrite;
};

struct MatMulShape {
  int64_t m, n, k;
};

inline MatMulShape ShapeOf(const MatMulArgs& args) {
  const int64_t a_columns = ExpectColumns("matmul a", args.a);
  const int64_t b_columns = ExpectColumns("matmul b", args.b);
  return {.m = args.trans_a ? a_columns : args.a.shape.rows(),
          .n = args.trans_b ? args.b.shape.rows() : b_columns,
          .k = args.trans_a ? args.a.shape.rows() : a_columns};
}

// Whether b is a weight that is kept in fewer bits than the input a, for a forward product.
inline bool IsNarrowWeight(const MatMulArgs& args) {
  return args.a.dtype == DType::kF32 && args.b.dtype == DType::kBF16 && args.trans_b &&
         !args.trans_a;
}

inline void Check(const MatMulArgs& args) {
  const auto [m, n, k] = ShapeOf(args);
  ExpectFloat("matmul a", args.a);
  const bool narrow = IsNarrowWeight(args);
  ExpectMatrix("matmul b", args.b, narrow ? DType::kBF16 : args.a.dtype, args.trans_b ? n : k,
               args.trans_b ? k : n);
  ExpectDType("matmul c", args.c, {args.a.dtype, AccumulateOfDType(args.a.dtype)});
  ExpectMatrix("matmul c", args.c, args.c.dtype, m, n);
  if (args.bias.data != nullptr) {
    ExpectElements("matmul bias", args.bias, args.a.dtype, n);
    CHECK(args.write == Write::kOverwrite) << "matmul bias: only when c is overwritten";
  }
}

}  // namespace trainyard
