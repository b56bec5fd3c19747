#include "kernels/products/matmul.h"

#include "common/check.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/products/blocked_matmul.h"
#include "kernels/cpu/products/matmul_rows.h"
#include "kernels/cpu/products/narrow_weight.h"
#ifdef TRAINYARD_WITH_DNNL
#include "kernels/cpu/products/dnnl_adapter.h"
#endif
#include "kernels/products/nf4_parts.h"

namespace trainyard::cpu {
namespace {

// Bytes of a part of a weight in NF4: a second-level cache of 2024. Smaller parts would have the
// other operand read more often.
constexpr int64_t kPartBytes = 1 << 21;

void MatMulNf4(Exec& exec, const MatMulArgs& args, Rows rows) {
  const int64_t column_bytes = ShapeOf(args).k * int64_t(SizeOf(args.a.dtype));
  const int64_t most = kPartBytes / column_bytes / kNf4Block * kNf4Block;
  const size_t bytes = size_t(PartSizesOf(args, most).elements) * SizeOf(args.a.dtype);
  MultiplyNf4(
      args, most, ContextOf(exec).widened.Reserve(bytes),
      [&](const DequantizeNf4Args& part) { DequantizeNf4(exec, part); },
      [&](const MatMulArgs& product) { MatMulOfRows(exec, product, rows); });
}

#ifdef TRAINYARD_WITH_DNNL
// oneDNN's fast code writes whole rows.
bool WritesColumns(const MatMulArgs& args) { return ViewOfC(args).columns != ViewOfC(args).stride; }

// The second product of an adapter, which is bound by reading and writing c. Our own code does both
// at once, for columns, too.
bool IsThin(const MatMulArgs& args) {
  constexpr int64_t kMost = 64;
  return args.write == Write::kAdd && !args.trans_a && ShapeOf(args).k <= kMost;
}

// c = or += rows of the same number of columns.
template <typename T, typename C>
void WriteColumns(const Exec& exec, const T* from, const MatMulArgs& args) {
  const ColumnsView c = ViewOfC(args);
  C* const to = const_cast<C*>(c.as<C>());
  const bool add = args.write == Write::kAdd;
  ParallelRows(exec, c.rows, c.columns, [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* const x = from + row * c.columns;
      C* const y = to + row * c.stride;
      if (add) {
#pragma omp simd
        for (int64_t i = 0; i < c.columns; ++i) y[i] = C(Accumulate<C>(y[i]) + Accumulate<T>(x[i]));
      } else {
        std::copy_n(x, c.columns, y);
      }
    }
  });
}

// The product of rows [begin, begin + rows) of c.
MatMulArgs RowsOfProduct(const MatMulArgs& args, int64_t begin, int64_t rows) {
  const auto from = [&](const void* data, const ConstTensor& matrix) {
    return static_cast<const std::byte*>(data) +
           begin * matrix.shape.back() * int64_t(SizeOf(matrix.dtype));
  };
  MatMulArgs some = args;
  some.c.data = const_cast<std::byte*>(from(args.c.data, args.c));
  some.c.shape = {rows, args.c.shape.back()};
  if (args.trans_a) {
    some.a_columns = {args.a_columns.begin + begin, rows};
  } else {
    some.a = {from(args.a.data, args.a), args.a.dtype, {rows, args.a.shape.back()}};
  }
  return some;
}

// Computes some rows apart, while the cache has them, and copies or adds them to the columns. Sums
// that are added are not rounded before. False: oneDNN has no fast code, and nothing was done.
bool MatMulOfColumns(Exec& exec, const MatMulArgs& args, Rows rows) {
  if (args.a.dtype == DType::kF64) return false;
  constexpr int64_t kBytes = 1 << 21, kLeastRows = 64;
  const MatMulShape shape = ShapeOf(args);
  const bool add = args.write == Write::kAdd;
  const DType dtype = add ? DType::kF32 : args.c.dtype;
  const int64_t fit = kBytes / (shape.n * int64_t(SizeOf(dtype))) / kLeastRows * kLeastRows;
  const int64_t most = std::min(shape.m, std::max(fit, kLeastRows));
  void* const apart = ContextOf(exec).shared.Reserve(size_t(most * shape.n) * SizeOf(dtype));
  for (int64_t row = 0; row < shape.m; row += most) {
    const MatMulArgs some = RowsOfProduct(args, row, std::min(most, shape.m - row));
    MatMulArgs product = some;
    product.c = Tensor{{apart, dtype, {some.c.shape[0], shape.n}}};
    product.c_columns = {};
    product.write = Write::kOverwrite;
    if (!DnnlMatMul(exec, product, rows)) {
      CHECK(row == 0) << "oneDNN has computed the first rows, and not those from " << row;
      return false;
    }
    DispatchFloat(args.c.dtype, [&](auto scalar) {
      using C = decltype(scalar);
      if (add) return WriteColumns<float, C>(exec, product.c.as<float>(), some);
      WriteColumns<C, C>(exec, product.c.as<C>(), some);
    });
  }
  return true;
}
#endif

}  // namespace

void MatMul(Exec& exec, const MatMulArgs& args) { MatMulOfRows(exec, args, Rows::kFixed); }

void MatMulOfRows(Exec& exec, const MatMulArgs& args, Rows rows) {
  if (IsInNf4(args)) return MatMulNf4(exec, args, rows);
  if (IsNarrowWeight(args)) return NarrowWeightMatMul(exec, args);
#ifdef TRAINYARD_WITH_DNNL
  if (IsThin(args)) return BlockedMatMul(exec, args);
  if (WritesColumns(args) ? MatMulOfColumns(exec, args, rows) : DnnlMatMul(exec, args, rows)) {
    return;
  }
#endif
  BlockedMatMul(exec, args);
}

}  // namespace trainyard::cpu
