// Computes one product after the other, each with all threads.
#include "kernels/products/grouped_matmul.h"

#include <vector>

#include "kernels/cpu/context.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/products/blocked_matmul.h"
#include "kernels/cpu/products/group_rows.h"
#include "kernels/cpu/products/matmul_rows.h"
#ifdef TRAINYARD_WITH_DNNL
#include "kernels/cpu/products/dnnl_adapter.h"
#endif

namespace trainyard::cpu {
namespace {

constexpr char kName[] = "grouped_matmul";

void Multiply(Exec& exec, const MatMulArgs& args) {
#ifdef TRAINYARD_WITH_DNNL
  if (DnnlMatMul(exec, args, Rows::kVary)) return;
#endif
  BlockedMatMul(exec, args);
}

// Rows [begin, begin + rows) of a matrix.
template <typename AnyTensor>
AnyTensor RowsOf(AnyTensor matrix, int64_t begin, int64_t rows) {
  const int64_t columns = matrix.shape.back(), skipped = begin * columns;
  using Byte = std::conditional_t<std::is_same_v<AnyTensor, Tensor>, std::byte, const std::byte>;
  matrix.data = static_cast<Byte*>(matrix.data) + skipped * int64_t(SizeOf(matrix.dtype));
  matrix.shape = {rows, columns};
  return matrix;
}
template <typename AnyTensor>
AnyTensor Matrix(const AnyTensor& stack, int64_t g) {
  return RowsOf(stack, g * stack.shape[1], stack.shape[1]);
}

void Zero(const Exec& exec, const Tensor& tensor) {
  auto* data = static_cast<std::byte*>(tensor.data);
  ParallelElements(exec, int64_t(tensor.bytes()), [=](int64_t begin, int64_t end) {
    std::fill(data + begin, data + end, std::byte{0});
  });
}

// The scales of the two operands of a product: one each, or those of the result's rows and columns.
template <typename A>
struct BothScales {
  const A *a, *b;
  bool of_lines;
};

// c = or += sums times both scales, rounded once.
template <typename T>
void AddScaled(const Exec& exec, const Accumulate<T>* sums, const BothScales<Accumulate<T>>& scales,
               const Tensor& c, Write write) {
  T* const to = c.as<T>();
  const bool add = write == Write::kAdd;
  const int64_t columns = c.shape.back();
  ParallelRows(exec, c.shape.rows(), columns, [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const Accumulate<T> a = scales.a[scales.of_lines ? row : 0];
      for (int64_t column = 0; column < columns; ++column) {
        const int64_t i = row * columns + column;
        const Accumulate<T> scaled = sums[i] * a * scales.b[scales.of_lines ? column : 0];
        to[i] = add ? T(Accumulate<T>(to[i]) + scaled) : T(scaled);
      }
    }
  });
}

// A group, and the first of its rows.
struct GroupAt {
  int64_t g, begin;
};

// The product of the operands of a group, which have these scales.
void MultiplyScaled(Exec& exec, const MatMulArgs& args, const ConstTensor& a_scales,
                    const ConstTensor& b_scales, const GroupAt& group) {
  DispatchFloat(args.c.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    using A = Accumulate<T>;
    A* const sums = reinterpret_cast<A*>(
        ContextOf(exec).widened.Reserve(size_t(args.c.elements()) * sizeof(A)));
    MatMulArgs product = args;
    product.c = Tensor{{sums, DTypeOf<A>::value, args.c.shape}};
    product.write = Write::kOverwrite;
    Multiply(exec, product);
    const bool lines = HasLineScales(b_scales);
    const BothScales<A> scales = {
        a_scales.as<A>() + (lines ? group.begin : group.g),
        b_scales.as<A>() + (lines ? group.g * b_scales.shape.back() : group.g), lines};
    AddScaled<T>(exec, sums, scales, args.c, args.write);
  });
}

// The runs of a group's weight in NF4, which are those of every group.
template <typename Args>
std::vector<Nf4Run> RunsOf(const Args& args) {
  const int64_t row_blocks = args.nf4_scales.shape.back();
  const int64_t rows = args.weight.shape[1] / args.nf4_tensors;
  const int64_t groups = args.nf4_groups.shape.back() / args.nf4_tensors;
  std::vector<Nf4Run> runs;
  for (int64_t i = 0; i < args.nf4_tensors; ++i) {
    runs.push_back({.row = i * rows,
                    .rows = rows,
                    .first_block = 0,
                    .row_blocks = row_blocks,
                    .first_group = i * groups,
                    .groups = groups});
  }
  return runs;
}

// The product with the weight of group g, which is in NF4.
template <typename Args>
void MultiplyNf4(Exec& exec, MatMulArgs product, const Args& args, const std::vector<Nf4Run>& runs,
                 int64_t g) {
  product.nf4_scales = Matrix(args.nf4_scales, g);
  product.nf4_groups = RowsOf(args.nf4_groups, g, 1);
  product.nf4_runs = runs;
  MatMulOfRows(exec, product, Rows::kVary);
}

}  // namespace

void GroupedMatMulForward(Exec& exec, const GroupedMatMulForwardArgs& args) {
  const std::vector<Nf4Run> runs = IsInNf4(args) ? RunsOf(args) : std::vector<Nf4Run>();
  const auto multiply = [&](int64_t g, int64_t begin, int64_t rows) {
    if (rows == 0) return;
    const MatMulArgs product = {.a = RowsOf(args.x, begin, rows),
                                .b = Matrix(args.weight, g),
                                .c = RowsOf(args.y, begin, rows),
                                .trans_b = true,
                                .write = args.write};
    if (IsInNf4(args)) return MultiplyNf4(exec, product, args, runs, g);
    if (args.x_scales.data == nullptr) return Multiply(exec, product);
    MultiplyScaled(exec, product, args.x_scales, args.weight_scales, {g, begin});
  };
  ForEachGroup(kName, args.offsets, args.x.shape.rows(), multiply);
}

void GroupedMatMulInputGradient(Exec& exec, const GroupedMatMulInputGradientArgs& args) {
  const std::vector<Nf4Run> runs = IsInNf4(args) ? RunsOf(args) : std::vector<Nf4Run>();
  const auto multiply = [&](int64_t g, int64_t begin, int64_t rows) {
    if (rows == 0) return;
    const MatMulArgs product = {.a = RowsOf(args.dy, begin, rows),
                                .b = Matrix(args.weight, g),
                                .c = RowsOf(args.dx, begin, rows),
                                .write = args.write};
    if (IsInNf4(args)) return MultiplyNf4(exec, product, args, runs, g);
    if (args.dy_scales.data == nullptr) return Multiply(exec, product);
    MultiplyScaled(exec, product, args.dy_scales, args.weight_scales, {g, begin});
  };
  ForEachGroup(kName, args.offsets, args.dy.shape.rows(), multiply);
}

void GroupedMatMulWeightGradient(Exec& exec, const GroupedMatMulWeightGradientArgs& args) {
  const auto multiply = [&](int64_t g, int64_t begin, int64_t rows) {
    const Tensor dweight = Matrix(args.dweight, g);
    if (rows == 0) {
      if (args.write == Write::kOverwrite) Zero(exec, dweight);
      return;
    }
    const MatMulArgs product = {.a = RowsOf(args.dy, begin, rows),
                                .b = RowsOf(args.x, begin, rows),
                                .c = dweight,
                                .trans_a = true,
                                .write = args.write};
    if (args.dy_scales.data == nullptr) return Multiply(exec, product);
    MultiplyScaled(exec, product, args.dy_scales, args.x_scales, {g, begin});
  };
  ForEachGroup(kName, args.offsets, args.dy.shape.rows(), multiply);
}

}  // namespace trainyard::cpu
