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
// device. Only CPUs multiply by a weight in bf16 of an input in f32.
//
// A matrix may be some columns of a wider tensor, such as those of one projection in the output of
// several. A weight w may be in NF4 (kernels/device/nf4.h), for forward and for the input gradient.
// A part of it at a time becomes numbers of a's dtype (nf4_parts.h): w is never whole in memory,
// and each sum is that of one product with the whole w.

#pragma once

#include "kernels/device/column_range.h"
#include "kernels/device/expect.h"
#include "kernels/device/nf4_operand.h"

namespace trainyard {

struct MatMulArgs {
  ConstTensor a;          // [M, K], [K, M] when trans_a;  f64 | f32 | bf16
  ConstTensor b;          // [K, N], [N, K] when trans_b;  dtype of a, or as IsNarrowWeight says
                          // in NF4 the codes, u8 [N, K / 2] when trans_b, otherwise [K, N / 2]
  Tensor c;               // [M, N]  dtype of a, or f32 when a is bf16; aliases nothing
  ConstTensor bias = {};  // [N]  dtype of a; none if its data is null; only with kOverwrite
  bool trans_a = false;
  bool trans_b = false;
  Write write = Write::kOverwrite;
  // The columns of a, b and c that are these matrices. The other columns of c keep their values. b
  // has all columns if it has fewer bits than a.
  ColumnRange a_columns = {}, b_columns = {}, c_columns = {};
  // If b is in NF4, as in Nf4Operand.
  ConstTensor nf4_scales = {}, nf4_groups = {};
  std::span<const Nf4Run> nf4_runs = {};
};

inline ColumnsView ViewOfA(const MatMulArgs& args) { return {args.a, args.a_columns}; }
inline ColumnsView ViewOfB(const MatMulArgs& args) { return {args.b, args.b_columns}; }
inline ColumnsView ViewOfC(const MatMulArgs& args) { return {args.c, args.c_columns}; }

inline Nf4Operand Nf4Of(const MatMulArgs& args) {
  return {args.nf4_scales, args.nf4_groups, args.nf4_runs};
}
inline bool IsInNf4(const MatMulArgs& args) { return args.b.dtype == DType::kU8; }

struct MatMulShape {
  int64_t m, n, k;
};

// Letters as above: of NF4, the numbers.
inline MatMulShape ShapeOf(const MatMulArgs& args) {
  ExpectColumns("matmul a", args.a);
  ExpectColumns("matmul b", args.b);
  const ColumnsView a = ViewOfA(args), b = ViewOfB(args);
  const int64_t b_columns = b.columns * (IsInNf4(args) ? kNf4PerByte : 1);
  return {.m = args.trans_a ? a.columns : a.rows,
          .n = args.trans_b ? b.rows : b_columns,
          .k = args.trans_a ? a.rows : a.columns};
}

// Whether b is a weight that is kept in fewer bits than the input a, for a forward product.
inline bool IsNarrowWeight(const MatMulArgs& args) {
  return args.a.dtype == DType::kF32 && args.b.dtype == DType::kBF16 && args.trans_b &&
         !args.trans_a;
}

// Of a weight with so many outputs and inputs.
inline void CheckNf4(const MatMulArgs& args, int64_t outputs, int64_t inputs) {
  const Nf4Operand of = Nf4Of(args);
  CHECK(!args.trans_a && inputs % kNf4Block == 0)
      << "matmul b: NF4 is a weight of whole blocks of " << kNf4Block << ", got " << args.b.shape;
  ExpectMatrix("matmul b", args.b, DType::kU8, outputs, inputs / kNf4PerByte);
  ExpectMatrix("matmul nf4_scales", of.scales, DType::kU8, outputs, inputs / kNf4Block);
  int64_t row = 0;
  for (const Nf4Run& run : of.runs) {
    CHECK(run.row == row && run.rows > 0) << "matmul nf4_runs: row " << run.row << " after " << row;
    const int64_t last = run.first_block + (run.rows - 1) * run.row_blocks + inputs / kNf4Block - 1;
    CHECK(run.first_block >= 0 && last / kNf4Group < run.groups - 1 && run.first_group >= 0 &&
          run.first_group + run.groups <= of.groups.elements())
        << "matmul nf4_groups: wanted one for block " << last << ", got " << run.groups - 1
        << " groups from " << run.first_group << " of " << of.groups.shape;
    row += run.rows;
  }
  CHECK(row == outputs) << "matmul nf4_runs: wanted " << outputs << " rows, got " << row;
  ExpectElements("matmul nf4_groups", of.groups, DType::kF32, of.groups.elements());
}

inline void Check(const MatMulArgs& args) {
  const auto [m, n, k] = ShapeOf(args);
  ExpectFloat("matmul a", args.a);
  ExpectMatrix("matmul a", args.a, args.a_columns, args.a.dtype,
               args.trans_a ? Shape{k, m} : Shape{m, k});
  const bool narrow = IsNarrowWeight(args);
  if (IsInNf4(args)) {
    CheckNf4(args, args.trans_b ? n : k, args.trans_b ? k : n);
  } else {
    ExpectMatrix("matmul b", args.b, args.b_columns, narrow ? DType::kBF16 : args.a.dtype,
                 args.trans_b ? Shape{n, k} : Shape{k, n});
  }
  CHECK(args.b_columns.all() || !(narrow || IsInNf4(args))) << "matmul b: wanted all columns";
  CHECK(!narrow || (args.a_columns.all() && args.c_columns.all()))
      << "matmul b: wanted all columns of a and c beside a weight in " << args.b.dtype;
  ExpectDType("matmul c", args.c, {args.a.dtype, AccumulateOfDType(args.a.dtype)});
  ExpectMatrix("matmul c", args.c, args.c_columns, args.c.dtype, {m, n});
  if (args.bias.data != nullptr) {
    ExpectElements("matmul bias", args.bias, args.a.dtype, n);
    CHECK(args.write == Write::kOverwrite) << "matmul bias: only when c is overwritten";
  }
}

}  // namespace trainyard
