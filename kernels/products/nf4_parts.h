// The products with a weight in NF4, part by part. A part of the weight becomes numbers in memory
// that the next part overwrites, and is multiplied while it is in a cache. A part has some outputs
// for the forward product and some inputs for the input gradient, so each part gives columns of the
// result, and every sum is taken in one piece:
//
//   forward          y [T, n]  = x  [T, K] part^T   part [n, K] of n outputs
//   input gradient   dx [T, k] = dy [T, N] part     part [N, k] of k inputs
//
// Letters as in matmul.h.

#pragma once

#include <algorithm>

#include "kernels/products/dequantize_nf4.h"
#include "kernels/products/matmul.h"

namespace trainyard {

// The columns of c that one part gives. A multiple of 64 but for the last part.
struct Nf4PartSizes {
  int64_t columns;   // Of c.
  int64_t each;      // Of a part; the last part may have fewer.
  int64_t elements;  // Numbers of a part.
};

// Divides the weight into parts of `most` columns of c, a multiple of 64. At least 64, and at most
// all.
inline Nf4PartSizes PartSizesOf(const MatMulArgs& args, int64_t most) {
  const auto [m, n, k] = ShapeOf(args);
  const int64_t each = std::min(n, std::max(most, kNf4Block));
  return {.columns = n, .each = each, .elements = each * k};
}

// Computes the product. `memory` has room for PartSizesOf(args, most).elements numbers of the dtype
// of a, and multiply(MatMulArgs) computes a product with such numbers.
template <typename Dequantize, typename Multiply>
void MultiplyNf4(const MatMulArgs& args, int64_t most, void* memory, const Dequantize& dequantize,
                 const Multiply& multiply) {
  const auto [m, n, k] = ShapeOf(args);
  const Nf4PartSizes parts = PartSizesOf(args, most);
  for (int64_t begin = 0; begin < n; begin += parts.each) {
    const int64_t columns = std::min(parts.each, n - begin);
    const Shape shape = args.trans_b ? Shape{columns, k} : Shape{k, columns};
    const Tensor part{{memory, args.a.dtype, shape}};
    ForEachRun({.codes = args.b,
                .operand = Nf4Of(args),
                .row = args.trans_b ? begin : 0,
                .column = args.trans_b ? 0 : begin},
               part, dequantize);
    MatMulArgs product = args;
    product.b = part;
    product.nf4_scales = product.nf4_groups = {};
    product.c_columns = {args.c_columns.begin + begin, columns};
    if (args.bias.data != nullptr) {
      const auto* const bias = static_cast<const std::byte*>(args.bias.data);
      product.bias = {bias + begin * int64_t(SizeOf(args.bias.dtype)), args.bias.dtype, {columns}};
    }
    multiply(product);
  }
}

}  // namespace trainyard
