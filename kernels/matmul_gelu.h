// A linear layer and GELU of its output, and backward the gradient of what GELU was taken of, where
// another linear layer reads it:
//
//   forward   product [T,N] = x w^T + bias,  y = gelu(product)
//   backward  dx [T,K] = (dy w) gelu'(x)
//
// Letters: T tokens, K inputs of the layer, N outputs. Leading dims count as rows. Sums are taken
// in f32 (f64 for f64), and so are GELU and its derivative (gelu.h). Whether the sums are rounded
// to the outputs' dtype before, is the backend's choice: y need not be that of the product as it is
// written. Deterministic as matmul.h is.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

struct MatMulGeluForwardArgs {
  ConstTensor x;          // [T, K]  f64 | f32 | bf16
  ConstTensor w;          // [N, K]  dtype of x
  ConstTensor bias = {};  // [N]  dtype of x; absent when its data is null
  Tensor product;         // [T, N]  dtype of x, out, overwritten; aliases nothing
  Tensor y;               // the same
};

struct MatMulGeluBackwardArgs {
  ConstTensor dy;  // [T, N]  f64 | f32 | bf16
  ConstTensor w;   // [N, K]  dtype of dy
  ConstTensor x;   // [T, K]  dtype of dy: what GELU was taken of
  Tensor dx;       // [T, K]  dtype of dy, out, overwritten; aliases nothing
};

inline void Check(const MatMulGeluForwardArgs& args) {
  const int64_t k = ExpectColumns("matmul_gelu x", args.x);
  const int64_t n = args.w.shape.rows();
  ExpectFloat("matmul_gelu x", args.x);
  ExpectMatrix("matmul_gelu w", args.w, args.x.dtype, n, k);
  if (args.bias.data != nullptr) ExpectElements("matmul_gelu bias", args.bias, args.x.dtype, n);
  ExpectMatrix("matmul_gelu product", args.product, args.x.dtype, args.x.shape.rows(), n);
  ExpectMatrix("matmul_gelu y", args.y, args.x.dtype, args.x.shape.rows(), n);
}

inline void Check(const MatMulGeluBackwardArgs& args) {
  const int64_t n = ExpectColumns("matmul_gelu dy", args.dy);
  const int64_t k = ExpectColumns("matmul_gelu w", args.w);
  ExpectFloat("matmul_gelu dy", args.dy);
  ExpectMatrix("matmul_gelu w", args.w, args.dy.dtype, n, k);
  ExpectMatrix("matmul_gelu x", args.x, args.dy.dtype, args.dy.shape.rows(), k);
  ExpectMatrix("matmul_gelu dx", args.dx, args.dy.dtype, args.dy.shape.rows(), k);
}

}  // namespace trainyard
