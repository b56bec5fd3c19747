#include "kernels/cuda/launch.h"
#include "kernels/cuda/products/plain_product.h"
#include "kernels/cuda/products/widened_product.h"

namespace trainyard::cuda {
namespace {

// The numbers of an operand, times their scales. A line is a row or a column of the output.
template <typename A>
struct ScaledPanel {
  static constexpr Order kOrder = Order::kDeep;

  const uint8_t* values;
  const A* scales;
  DType dtype;
  int64_t line_stride, depth_stride;  // Of values.
  int64_t line_block, depth_block;    // Numbers that share a scale.
  int64_t scales_line_stride, scales_depth_stride;
  int64_t first;  // Line of the operand.
  int64_t lines;

  // The lines from `begin` on.
  __device__ ScaledPanel From(int64_t begin) const {
    ScaledPanel panel = *this;
    panel.first += begin;
    panel.lines -= begin;
    return panel;
  }
  __device__ A Value(int64_t line, int64_t depth) const {
    line += first;
    const uint8_t bits = values[line * line_stride + depth * depth_stride];
    const float number = dtype == DType::kE4M3 ? ToFloat<E4M3>(bits) : ToFloat<E5M2>(bits);
    return A(number) * scales[line / line_block * scales_line_stride +
                              depth / depth_block * scales_depth_stride];
  }
};

// `deep_rows`: the rows of the matrix are summed, and its columns are lines.
template <typename A>
ScaledPanel<A> PanelOf(const ConstTensor& values, const ConstTensor& scales,
                       const ScaleBlock& block, bool by_columns, bool deep_rows) {
  const int64_t rows = values.shape.rows(), columns = values.shape.back();
  const ScaleBlock real = block.In(values.shape);
  const int64_t across = scales.shape.back();
  const int64_t row_stride = by_columns ? 1 : columns, column_stride = by_columns ? rows : 1;
  ScaledPanel<A> panel = {.values = static_cast<const uint8_t*>(values.data),
                          .scales = scales.as<A>(),
                          .dtype = values.dtype,
                          .line_stride = row_stride,
                          .depth_stride = column_stride,
                          .line_block = real.rows,
                          .depth_block = real.columns,
                          .scales_line_stride = across,
                          .scales_depth_stride = 1,
                          .first = 0,
                          .lines = rows};
  if (deep_rows) {
    std::swap(panel.line_stride, panel.depth_stride);
    std::swap(panel.line_block, panel.depth_block);
    std::swap(panel.scales_line_stride, panel.scales_depth_stride);
    panel.lines = columns;
  }
  return panel;
}

template <typename C>
struct Result {
  C* c;
  const C* bias;  // Null: none.
  bool add;
};

template <typename A, typename C>
__global__ void __launch_bounds__(PlainProduct<A>::kThreads, PlainProduct<A>::kBlocks)
    WidenedKernel(ScaledPanel<A> a, ScaledPanel<A> b, int64_t depth, Result<C> result) {
  constexpr int kTile = PlainProduct<A>::kTile;
  const int64_t across = CeilDiv(b.lines, kTile);
  const int64_t row = blockIdx.x / across * kTile, column = blockIdx.x % across * kTile;
  const ScaledPanel<A> left = a.From(row), right = b.From(column);
  PlainProduct<A>(left, right, depth, DynamicShared<std::byte>())
      .ForEachSum([&](int r, int c, auto sum) {
        if (r >= left.lines || c >= right.lines) return;
        C* const to = result.c + (row + r) * b.lines + column + c;
        A total = sum.v[0];
        if (result.bias != nullptr) total += A(result.bias[column + c]);
        if (result.add) total += A(*to);
        *to = C(total);
      });
}

template <typename A, typename C>
void Multiply(Exec& exec, const ScaledMatMulArgs& args) {
  const auto a = PanelOf<A>(args.a, args.a_scales, args.a_block, args.a_by_columns, args.trans_a);
  const auto b = PanelOf<A>(args.b, args.b_scales, args.b_block, args.b_by_columns, !args.trans_b);
  const int64_t depth = args.a.elements() / a.lines;
  const Result<C> result = {.c = args.c.as<C>(),
                            .bias = args.bias.data == nullptr ? nullptr : args.bias.as<C>(),
                            .add = args.write == Write::kAdd};
  using Product = PlainProduct<A>;
  const int64_t tiles = CeilDiv(a.lines, Product::kTile) * CeilDiv(b.lines, Product::kTile);
  Launch(exec, {tiles, Product::kThreads, Product::kShared}, WidenedKernel<A, C>, a, b, depth,
         result);
}

struct ArrangeBody {
  int64_t columns;
  ScalesView<const float> from;
  ScalesView<float> to;

  __device__ void operator()(int64_t i) const {
    const int64_t row = i / columns, column = i % columns;
    to.data[row * to.row_stride + column * to.column_stride] =
        from.data[row * from.row_stride + column * from.column_stride];
  }
};

}  // namespace

void WidenedProduct(Exec& exec, const ScaledMatMulArgs& args) {
  switch (args.c.dtype) {
    case DType::kF64:
      return Multiply<double, double>(exec, args);
    case DType::kF32:
      return Multiply<float, float>(exec, args);
    default:
      return Multiply<float, bf16>(exec, args);
  }
}

void ArrangeScales(Exec& exec, int64_t rows, int64_t columns, const ScalesView<const float>& from,
                   const ScalesView<float>& to) {
  ForEach(exec, rows * columns, ArrangeBody{columns, from, to});
}

}  // namespace trainyard::cuda
