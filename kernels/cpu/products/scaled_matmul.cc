#include "kernels/products/scaled_matmul.h"

#include <algorithm>
#include <array>

#include "kernels/cpu/context.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/products/matmul.h"

namespace trainyard::cpu {
namespace {

// A number is its value times the scale of its block.
struct ScaledMatrix {
  const ConstTensor &values, &scales;
  ScaleBlock block;
  bool by_columns;  // How the values lie in memory.
};

template <typename A>
void Widen(const Exec& exec, const ScaledMatrix& matrix, A* y) {
  const Shape& shape = matrix.values.shape;
  const ScaleBlock block = matrix.block.In(shape);
  const int64_t rows = shape.rows(), columns = shape.back();
  const int64_t per_row = matrix.block.ScalesOf(shape)[1];
  const int64_t row_stride = matrix.by_columns ? 1 : columns;
  const int64_t column_stride = matrix.by_columns ? rows : 1;
  const std::array<float, 256> numbers = DispatchNarrow(
      matrix.values.dtype, [](auto format) { return AllNumbers<decltype(format)>(); });
  const uint8_t* const x = static_cast<const uint8_t*>(matrix.values.data);
  const A* const scales = matrix.scales.as<A>();
  ParallelRows(exec, rows, columns, [=, &numbers](int64_t from, int64_t to) {
    for (int64_t r = from; r < to; ++r) {
      for (int64_t begin = 0; begin < columns; begin += block.columns) {
        const A scale = scales[r / block.rows * per_row + begin / block.columns];
        const int64_t end = std::min(columns, begin + block.columns);
        const uint8_t* const in = x + r * row_stride;
        for (int64_t c = begin; c < end; ++c) {
          y[r * columns + c] = A(numbers[in[c * column_stride]]) * scale;
        }
      }
    }
  });
}

// c = sums + bias, rounded.
void RoundWithBias(const Exec& exec, const float* sums, const ScaledMatMulArgs& args) {
  const int64_t n = args.c.shape.back();
  const bf16* const bias = args.bias.data == nullptr ? nullptr : args.bias.as<bf16>();
  bf16* const c = args.c.as<bf16>();
  ParallelRows(exec, args.c.shape.rows(), n, [=](int64_t from, int64_t to) {
    for (int64_t r = from; r < to; ++r) {
      for (int64_t i = 0; i < n; ++i) {
        c[r * n + i] = sums[r * n + i] + (bias == nullptr ? 0.0f : float(bias[i]));
      }
    }
  });
}

template <typename A>
void Multiply(Exec& exec, const ScaledMatMulArgs& args) {
  const int64_t of_a = args.a.elements(), of_b = args.b.elements();
  const bool rounded = args.c.dtype == DType::kBF16;
  const int64_t of_sums = rounded ? args.c.elements() : 0;
  A* const a = reinterpret_cast<A*>(
      ContextOf(exec).widened.Reserve(size_t(of_a + of_b + of_sums) * sizeof(A)));
  A *const b = a + of_a, *const sums = b + of_b;
  Widen(exec, {args.a, args.a_scales, args.a_block, args.a_by_columns}, a);
  Widen(exec, {args.b, args.b_scales, args.b_block, args.b_by_columns}, b);
  MatMulArgs product{.a = {a, DTypeOf<A>::value, args.a.shape},
                     .b = {b, DTypeOf<A>::value, args.b.shape},
                     .c = args.c,
                     .bias = args.bias,
                     .trans_a = args.trans_a,
                     .trans_b = args.trans_b,
                     .write = args.write};
  if (rounded) {
    product.bias = {};
    product.c = Tensor{{sums, DTypeOf<A>::value, args.c.shape}};
  }
  MatMul(exec, product);
  if constexpr (std::is_same_v<A, float>) {
    if (rounded) RoundWithBias(exec, sums, args);
  }
}

}  // namespace

void ScaledMatMul(Exec& exec, const ScaledMatMulArgs& args) {
  args.c.dtype == DType::kF64 ? Multiply<double>(exec, args) : Multiply<float>(exec, args);
}

}  // namespace trainyard::cpu
