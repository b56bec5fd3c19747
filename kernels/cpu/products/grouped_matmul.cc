// Computes one product after the other, each with all threads.
#include "kernels/products/grouped_matmul.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/products/blocked_matmul.h"
#ifdef TRAINYARD_WITH_DNNL
#include "kernels/cpu/products/dnnl_adapter.h"
#endif

namespace trainyard::cpu {
namespace {

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

// Calls body(g, first row, rows) for each group.
template <typename Body>
void ForEachGroup(const ConstTensor& offsets, int64_t bound, const Body& body) {
  const int32_t* offset = offsets.as<int32_t>();
  const int64_t groups = offsets.elements() - 1;
  for (int64_t g = 0; g < groups; ++g) {
    CHECK(offset[g] >= 0 && offset[g] <= offset[g + 1] && offset[g + 1] <= bound)
        << "grouped_matmul offsets: group " << g << " has rows " << offset[g] << " to "
        << offset[g + 1] << " of " << bound;
    body(g, offset[g], offset[g + 1] - offset[g]);
  }
}

void Zero(const Exec& exec, const Tensor& tensor) {
  auto* data = static_cast<std::byte*>(tensor.data);
  ParallelElements(exec, int64_t(tensor.bytes()), [=](int64_t begin, int64_t end) {
    std::fill(data + begin, data + end, std::byte{0});
  });
}

}  // namespace

void GroupedMatMulForward(Exec& exec, const GroupedMatMulForwardArgs& args) {
  ForEachGroup(args.offsets, args.x.shape.rows(), [&](int64_t g, int64_t begin, int64_t rows) {
    if (rows == 0) return;
    Multiply(exec, {.a = RowsOf(args.x, begin, rows),
                    .b = Matrix(args.weight, g),
                    .c = RowsOf(args.y, begin, rows),
                    .trans_b = true,
                    .write = args.write});
  });
}

void GroupedMatMulInputGradient(Exec& exec, const GroupedMatMulInputGradientArgs& args) {
  ForEachGroup(args.offsets, args.dy.shape.rows(), [&](int64_t g, int64_t begin, int64_t rows) {
    if (rows == 0) return;
    Multiply(exec, {.a = RowsOf(args.dy, begin, rows),
                    .b = Matrix(args.weight, g),
                    .c = RowsOf(args.dx, begin, rows),
                    .write = args.write});
  });
}

void GroupedMatMulWeightGradient(Exec& exec, const GroupedMatMulWeightGradientArgs& args) {
  ForEachGroup(args.offsets, args.dy.shape.rows(), [&](int64_t g, int64_t begin, int64_t rows) {
    const Tensor dweight = Matrix(args.dweight, g);
    if (rows == 0) {
      if (args.write == Write::kOverwrite) Zero(exec, dweight);
      return;
    }
    Multiply(exec, {.a = RowsOf(args.dy, begin, rows),
                    .b = RowsOf(args.x, begin, rows),
                    .c = dweight,
                    .trans_a = true,
                    .write = args.write});
  });
}

}  // namespace trainyard::cpu
