// Each task computes one tile of c. It walks along k in slices, copies the slices of a and b to
// contiguous f32 or f64 (which handles transposition and bf16), and adds their product to a tile in
// f32 or f64. With a tile of 192 x 256, copying is about a tenth of the work.

#include "kernels/cpu/products/blocked_matmul.h"

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/products/tile_product.h"

namespace trainyard::cpu {
namespace {

constexpr int64_t kTileRows = 192, kTileColumns = 256, kSlice = 256;
constexpr int64_t kStrip = 64;  // Columns of b that are copied together.

// An operand by rows and columns, transposed or not.
template <typename T>
struct Operand {
  const T* data;
  int64_t row, column;  // Strides.
};

template <typename T>
Operand<T> View(const ColumnsView& view, bool transposed) {
  return {view.as<T>(), transposed ? 1 : view.stride, transposed ? view.stride : 1};
}

// to[r, c] = from[r, c] for `rows` by `columns` elements, and zeroes up to `padded` columns.
template <typename T, typename A>
void Copy(const Operand<T>& from, int64_t rows, int64_t columns, int64_t padded, A* to) {
  if (from.column == 1) {
    for (int64_t r = 0; r < rows; ++r) {
      const T* row = from.data + r * from.row;
#pragma omp simd
      for (int64_t c = 0; c < columns; ++c) to[r * padded + c] = A(row[c]);
    }
  } else {
    // Reads along columns, for a few rows at a time, so that the lines of `to` stay in the nearest
    // cache.
    constexpr int64_t kRows = 16;
    for (int64_t first = 0; first < rows; first += kRows) {
      const int64_t last = std::min(rows, first + kRows);
      for (int64_t c = 0; c < columns; ++c) {
        const T* column = from.data + c * from.column;
        for (int64_t r = first; r < last; ++r) to[r * padded + c] = A(column[r * from.row]);
      }
    }
  }
  for (int64_t r = 0; r < rows; ++r) std::fill_n(to + r * padded + columns, padded - columns, A(0));
}

template <typename T, typename A>
void AddProduct(const Operand<T>& a, const Operand<T>& b, const MatMulShape& shape, A* scratch,
                A* tile) {
  A* a_slice = scratch;                     // [m, kSlice]
  A* b_strip = scratch + shape.m * kSlice;  // [kSlice, kStrip]
  for (int64_t k = 0; k < shape.k; k += kSlice) {
    const int64_t depth = std::min(kSlice, shape.k - k);
    Copy(Operand<T>{a.data + k * a.column, a.row, a.column}, shape.m, depth, depth, a_slice);
    for (int64_t n = 0; n < shape.n; n += kStrip) {
      const int64_t columns = std::min(kStrip, shape.n - n);
      const int64_t padded = (columns + kTileLanes - 1) / kTileLanes * kTileLanes;
      Copy(Operand<T>{b.data + k * b.row + n * b.column, b.row, b.column}, depth, columns, padded,
           b_strip);
      TileProduct({.m = shape.m,
                   .n = padded,
                   .k = depth,
                   .a = a_slice,
                   .a_row = depth,
                   .a_column = 1,
                   .b = b_strip,
                   .b_row = padded,
                   .c = tile + n,
                   .c_row = kTileColumns,
                   .add = k > 0});
    }
  }
}

template <typename T, typename C>
void Multiply(Exec& exec, const MatMulArgs& args) {
  using A = Accumulate<T>;
  const MatMulShape shape = ShapeOf(args);
  const Operand<T> a = View<T>(ViewOfA(args), args.trans_a);
  const Operand<T> b = View<T>(ViewOfB(args), args.trans_b);
  const T* bias = args.bias.data != nullptr ? args.bias.as<T>() : nullptr;
  C* c = args.c.as<C>() + args.c_columns.begin;
  const int64_t c_stride = args.c.shape.back();
  const int64_t down = (shape.m + kTileRows - 1) / kTileRows;
  const int64_t across = (shape.n + kTileColumns - 1) / kTileColumns;
  Context& context = ContextOf(exec);
  ParallelTasks(exec, down * across, [&](int64_t task, int thread) {
    const int64_t m = task / across * kTileRows, n = task % across * kTileColumns;
    const int64_t rows = std::min(kTileRows, shape.m - m);
    const int64_t columns = std::min(kTileColumns, shape.n - n);
    constexpr size_t kElements = kTileRows * kTileColumns + (kTileRows + kStrip) * kSlice;
    A* tile = reinterpret_cast<A*>(context.scratch[thread].Reserve(kElements * sizeof(A)));
    AddProduct<T, A>({a.data + m * a.row, a.row, a.column},
                     {b.data + n * b.column, b.row, b.column}, {rows, columns, shape.k},
                     tile + kTileRows * kTileColumns, tile);
    for (int64_t r = 0; r < rows; ++r) {
      C* out = c + (m + r) * c_stride + n;
      const A* const sums = tile + r * kTileColumns;
      if (args.write == Write::kAdd) {
#pragma omp simd
        for (int64_t i = 0; i < columns; ++i) out[i] = C(sums[i] + A(out[i]));
      } else if (bias != nullptr) {
#pragma omp simd
        for (int64_t i = 0; i < columns; ++i) out[i] = C(sums[i] + A(bias[n + i]));
      } else {
#pragma omp simd
        for (int64_t i = 0; i < columns; ++i) out[i] = C(sums[i]);
      }
    }
  });
}

}  // namespace

void BlockedMatMul(Exec& exec, const MatMulArgs& args) {
  switch (args.a.dtype) {
    case DType::kF64:
      return Multiply<double, double>(exec, args);
    case DType::kF32:
      return Multiply<float, float>(exec, args);
    default:
      return args.c.dtype == DType::kF32 ? Multiply<bf16, float>(exec, args)
                                         : Multiply<bf16, bf16>(exec, args);
  }
}

}  // namespace trainyard::cpu
