// A linear layer followed by GELU. Backward gives the gradient of GELU's input if another linear
// layer reads GELU's output:
//
//   forward   product [T,N] = x w^T + bias,  y = gelu(product)
//   backward  dx [T,K] = (dy w) gelu'(x)
//
// Letters: T tokens, K inputs of the layer, N outputs. Leading dims count as rows. Sums, GELU and
// its derivative (gelu.h) are computed in f32 (f64 for f64). The backend decides whether the sums
// are rounded to the outputs' dtype before GELU: y may differ from GELU of the stored product.
// Deterministic as matmul.h.

#pragma once

#include "kernels/device/expect.h"
#include "kernels/products/matmul.h"

namespace trainyard {

struct MatMulGeluForwardArgs {
  ConstTensor x;          // [T, K]  f64 | f32 | bf16
  ConstTensor w;          // [N, K]  dtype of x, or as matmul.h has it of a forward product
  ConstTensor bias = {};  // [N]  dtype of x; absent when its data is null
  Tensor product;         // [T, N]  dtype of x, out, overwritten; aliases nothing
  Tensor y;               // [T, N]  dtype of x, out, overwritten; aliases nothing
};

struct MatMulGeluBackwardArgs {
  ConstTensor dy;  // [T, N]  f64 | f32 | bf16
  ConstTensor w;   // [N, K]  dtype of dy
  ConstTensor x;   // [T, K]  dtype of dy: the input of GELU
  Tensor dx;       // [T, K]  dtype of dy, out, overwritten; aliases nothing
};

inline void Check(const MatMulGeluForwardArgs& args) {
  const int64_t k = ExpectColumns("matmul_gelu x", args.x);
  const int64_t n = args.w.shape.rows();
  ExpectFloat("matmul_gelu x", args.x);
  const MatMulArgs product = {.a = args.x, .b = args.w, .c = args.product, .trans_b = true};
  ExpectMatrix("matmul_gelu w", args.w, IsNarrowWeight(product) ? args.w.dtype : args.x.dtype, n,
               k);
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
