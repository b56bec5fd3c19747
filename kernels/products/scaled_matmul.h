// The matrix product (matmul.h) of operands in 8-bit formats with scales:
//
//   c[m,n] = (write == kAdd ? c[m,n] : 0) + sum_k A[m,k] B[k,n] + bias[n]
//
//   A = the numbers of a, or their transpose when trans_a; B likewise.
//
// Letters: M rows and N columns of the product, K summed elements. Leading dims of an operand count
// as rows. Shapes, scales and blocks are those of the matrix, in whichever order its numbers lie in
// memory.
//
// A CPU multiplies each number by its scale, in f32 (f64 when c is f64), and sums as matmul.h does
// for that type; a result in bf16 is rounded once. Deterministic as matmul.h. A GPU multiplies on
// the tensor cores, by cuBLASLt, which sums in f32 or better, if
//   * the numbers of dim K are neighbours in memory: a by columns if and only if trans_a, and b by
//     columns if and only if not trans_b,
//   * M, N and K are multiples of 16, and so are the addresses of a, b and c in bytes,
//   * at most one operand is e5m2, and c is not f64,
//   * both operands have one scale; or one for each row of A and column of B; or one for 128
//     numbers of dim K, or for 128 x 128, but not the latter for both.
// Other products are computed there as on a CPU, slowly, with a warning for each shape. cuBLASLt
// may multiply a sum by one scale before the other, so that a result in range needs a sum times
// either scale in range.

#pragma once

#include "kernels/device/expect.h"
#include "kernels/device/narrow.h"

namespace trainyard {

struct ScaledMatMulArgs {
  ConstTensor a;         // [M, K], [K, M] when trans_a;  e4m3 | e5m2
  ConstTensor a_scales;  // [a_block.ScalesOf(a)]  f32 (f64 when c is f64)
  ScaleBlock a_block;    // Numbers of a that share a scale.
  ConstTensor b;         // [K, N], [N, K] when trans_b;  e4m3 | e5m2
  ConstTensor b_scales;  // [b_block.ScalesOf(b)]  f32 (f64 when c is f64)
  ScaleBlock b_block;
  bool a_by_columns = false;  // The numbers of a, or b, lie in memory column by column.
  bool b_by_columns = false;
  Tensor c;               // [M, N]  f64 | f32 | bf16; aliases nothing; bf16 only with kOverwrite
  ConstTensor bias = {};  // [N]  dtype of c; none if its data is null; only with kOverwrite
  bool trans_a = false;
  bool trans_b = false;
  Write write = Write::kOverwrite;
};

inline void Check(const ScaledMatMulArgs& args) {
  const auto expect_scaled = [&](const char* name, const ConstTensor& values,
                                 const ConstTensor& scales, const ScaleBlock& block) {
    ExpectDType(name, values, {DType::kE4M3, DType::kE5M2});
    ExpectColumns(name, values);
    ExpectData(name, values);
    const Shape wanted = block.ScalesOf(values.shape);
    ExpectMatrix(name, scales, AccumulateOfDType(args.c.dtype), wanted[0], wanted[1]);
  };
  expect_scaled("scaled_matmul a", args.a, args.a_scales, args.a_block);
  expect_scaled("scaled_matmul b", args.b, args.b_scales, args.b_block);
  const Shape &a = args.a.shape, &b = args.b.shape;
  const int64_t m = args.trans_a ? a.back() : a.rows(), k = args.trans_a ? a.rows() : a.back();
  const int64_t n = args.trans_b ? b.rows() : b.back(), summed = args.trans_b ? b.back() : b.rows();
  CHECK(summed == k) << "scaled_matmul b: wanted " << k << " summed elements, got " << summed;
  ExpectFloat("scaled_matmul c", args.c);
  ExpectMatrix("scaled_matmul c", args.c, args.c.dtype, m, n);
  CHECK(args.write == Write::kOverwrite || args.c.dtype != DType::kBF16)
      << "scaled_matmul c: sums in bf16";
  if (args.bias.data != nullptr) {
    ExpectElements("scaled_matmul bias", args.bias, args.c.dtype, n);
    CHECK(args.write == Write::kOverwrite) << "scaled_matmul bias: only when c is overwritten";
  }
}

}  // namespace trainyard
