// Products of operands in 8 bits by cuBLASLt. Source of its rules, which are those of compute
// capability 9.0: cuBLAS 13.1, sections 3.1.4 (scales and their order) and 3.4.17 (types, shapes).

#include <cuda_runtime.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "common/log.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/products/cublaslt_product.h"
#include "kernels/cuda/products/matmul_bias.h"
#include "kernels/cuda/products/widened_product.h"
#include "kernels/products/scaled_matmul.h"

namespace trainyard::cuda {
namespace {

constexpr int64_t kBlock = 128;    // Numbers that share a scale in cuBLASLt's blocks.
constexpr int64_t kMultiple = 16;  // Of each dim, and of addresses in bytes.

constexpr int64_t RoundUp(int64_t x, int64_t multiple) {
  return (x + multiple - 1) / multiple * multiple;
}

// An operand, as the product reads it: `kept` dim of the result, and the summed one.
struct Operand {
  const ConstTensor& values;
  const ConstTensor& scales;
  int64_t kept_block, summed_block;  // Numbers that share a scale; 0: all.
  bool sums_rows;                    // The summed dim is that of the rows.
  bool deep;                         // Neighbours of the summed dim are neighbours in memory.

  int64_t groups() const {  // Of the summed dim, that have a scale each.
    return sums_rows ? scales.shape.rows() : scales.shape.back();
  }
  int64_t kept_scales() const { return scales.elements() / groups(); }
};

Operand OperandA(const ScaledMatMulArgs& args) {
  const bool t = args.trans_a;
  return {.values = args.a,
          .scales = args.a_scales,
          .kept_block = t ? args.a_block.columns : args.a_block.rows,
          .summed_block = t ? args.a_block.rows : args.a_block.columns,
          .sums_rows = t,
          .deep = t == args.a_by_columns};
}
Operand OperandB(const ScaledMatMulArgs& args) {
  const bool t = args.trans_b;
  return {.values = args.b,
          .scales = args.b_scales,
          .kept_block = t ? args.b_block.rows : args.b_block.columns,
          .summed_block = t ? args.b_block.columns : args.b_block.rows,
          .sums_rows = !t,
          .deep = t != args.b_by_columns};
}

// How cuBLASLt reads the operand's scales; nullopt if it cannot.
std::optional<cublasLtMatmulMatrixScale_t> ModeOf(const Operand& x) {
  if (x.summed_block == 0 && x.kept_block == 0) return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  if (x.summed_block == 0 && x.kept_block == 1) return CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
  if (x.summed_block != kBlock) return std::nullopt;
  if (x.kept_block == 1) return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
  if (x.kept_block == kBlock) return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
  return std::nullopt;
}

bool IsOfBlocks(cublasLtMatmulMatrixScale_t mode) {
  return mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F ||
         mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
}

// The order in which cuBLASLt reads scales: the distances between neighbours of the kept dim and
// of the summed one.
struct OrderOfScales {
  int64_t kept_stride, summed_stride;
  int64_t elements;
};
OrderOfScales WantedOrder(const Operand& x) {
  const int64_t kept = x.kept_scales(), groups = x.groups();
  if (*ModeOf(x) == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F) return {1, kept, kept * groups};
  const int64_t stride = RoundUp(groups, 4);
  return {stride, 1, stride * kept};
}

// Whether the operand's scales must be copied to be in cuBLASLt's order.
bool NeedsArranging(const Operand& x) {
  if (!IsOfBlocks(*ModeOf(x))) return false;
  if (AlignmentOf(x.scales.data) < kMultiple) return true;
  const OrderOfScales wanted = WantedOrder(x);
  const int64_t kept = x.kept_scales(), groups = x.groups();
  const int64_t kept_stride = x.sums_rows ? 1 : groups, summed_stride = x.sums_rows ? kept : 1;
  return wanted.kept_stride != kept_stride || wanted.summed_stride != summed_stride;
}

// Why cuBLASLt does not compute the product; "" if it may.
std::string ReasonAgainst(const ScaledMatMulArgs& args) {
  const Operand a = OperandA(args), b = OperandB(args);
  if (args.c.dtype == DType::kF64) return "f64";
  if (!a.deep || !b.deep) return "an operand whose summed dim is not the last in memory";
  if (args.a.dtype == DType::kE5M2 && args.b.dtype == DType::kE5M2) return "e5m2 times e5m2";
  const int64_t m = args.c.shape.rows(), n = args.c.shape.back(), k = args.a.elements() / m;
  if (m % kMultiple != 0 || n % kMultiple != 0 || k % kMultiple != 0) {
    return "a dim that is no multiple of 16";
  }
  for (const void* data : {args.a.data, args.b.data, static_cast<const void*>(args.c.data)}) {
    if (AlignmentOf(data) < kMultiple) return "an address that is no multiple of 16";
  }
  const auto a_mode = ModeOf(a), b_mode = ModeOf(b);
  const bool blocks = a_mode && b_mode && IsOfBlocks(*a_mode) && IsOfBlocks(*b_mode);
  const bool squares =
      blocks && a_mode == b_mode && a_mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
  if (!a_mode || !b_mode || (a_mode != b_mode && !blocks) || squares) {
    return "scales that cuBLASLt does not have";
  }
  return "";
}

class ScaledProducts {
 public:
  // False: the library has no algorithm, or refuses all of them. Nothing was run.
  bool Run(Exec& exec, const ProductCall& call) {
    std::optional<Product>& product = Find(call);
    return product && library_.Run(exec, call, *product);
  }
  // Logs the first product of a shape that cuBLASLt does not compute.
  void Refuse(const ScaledMatMulArgs& args, const std::string& reason) {
    const int64_t m = args.c.shape.rows(), n = args.c.shape.back(), k = args.a.elements() / m;
    const bool is_new = refused_.insert({m, n, k, args.a.dtype, args.c.dtype}).second;
    if (!is_new || args.c.dtype == DType::kF64) return;
    LogWarning("scaled_matmul_without_cublaslt",
               {{"m", m}, {"n", n}, {"k", k}, {"reason", reason}});
  }

 private:
  using Shape = std::tuple<int64_t, int64_t, int64_t, DType, DType>;
  using Key = std::tuple<int64_t, int64_t, int64_t, DType, DType, DType, cublasLtEpilogue_t,
                         cublasLtMatmulMatrixScale_t, cublasLtMatmulMatrixScale_t, uint32_t,
                         uint32_t, uint32_t, uint32_t>;

  std::optional<Product>& Find(const ProductCall& call) {
    const MatMulArgs& args = call.args;
    const auto [m, n, k] = ShapeOf(args);
    const Key key(m, n, k, args.a.dtype, args.b.dtype, args.c.dtype, call.epilogue(),
                  call.a_scales.mode, call.b_scales.mode, AlignmentOf(args.a.data),
                  AlignmentOf(args.b.data), AlignmentOf(args.c.data), AlignmentOf(args.bias.data));
    const auto found = products_.find(key);
    if (found != products_.end()) return found->second;
    return products_.emplace(key, library_.Prepare(call)).first->second;
  }

  CublasLt library_;
  std::map<Key, std::optional<Product>> products_;
  std::set<Shape> refused_;
};

// The operand's scales in cuBLASLt's order: as they are, or copied to `to`.
ProductScales ScalesFor(Exec& exec, const Operand& x, float* to) {
  const ProductScales as_they_are = {x.scales.data, *ModeOf(x)};
  if (!NeedsArranging(x)) return as_they_are;
  const OrderOfScales wanted = WantedOrder(x);
  const int64_t kept = x.kept_scales(), groups = x.groups();
  const ScalesView<const float> from = {.data = x.scales.as<float>(),
                                        .row_stride = x.sums_rows ? 1 : groups,
                                        .column_stride = x.sums_rows ? kept : 1};
  ArrangeScales(exec, kept, groups, from, {to, wanted.kept_stride, wanted.summed_stride});
  return {to, as_they_are.mode};
}

// Bytes of the operand's scales if they are copied.
size_t ArrangedBytes(const Operand& x) {
  if (!NeedsArranging(x)) return 0;
  return size_t(RoundUp(WantedOrder(x).elements * int64_t(sizeof(float)), 256));
}

// Runs the product by cuBLASLt. False: the library has no algorithm, and nothing was run.
bool RunByLibrary(Exec& exec, const ScaledMatMulArgs& args) {
  const Operand a = OperandA(args), b = OperandB(args);
  // The library's workspace is the beginning of the same memory.
  std::byte* const arranged =
      Scratch(exec, kWorkspaceBytes + ArrangedBytes(a) + ArrangedBytes(b)) + kWorkspaceBytes;
  const auto [m, n] = std::pair(args.c.shape.rows(), args.c.shape.back());
  const int64_t k = args.a.elements() / m;
  ProductCall call = {
      .args = {.a = {args.a.data, args.a.dtype, {m, k}},
               .b = {args.b.data, args.b.dtype, {n, k}},
               .c = args.c,
               .bias = args.bias,
               .trans_b = true,
               .write = args.write},
      .a_scales = ScalesFor(exec, a, reinterpret_cast<float*>(arranged)),
      .b_scales = ScalesFor(exec, b, reinterpret_cast<float*>(arranged + ArrangedBytes(a)))};
  ScaledProducts& products = Kept<ScaledProducts>(exec);
  // The library adds biases in bf16 alone.
  const bool adds_bias = args.bias.data == nullptr || (args.bias.dtype == DType::kBF16 &&
                                                       AlignmentOf(args.bias.data) >= kMultiple);
  if (adds_bias && products.Run(exec, call)) return true;
  if (args.bias.data == nullptr) return false;
  FillWithBias(exec, call.args);
  call.args.bias = {};
  call.args.write = Write::kAdd;
  return products.Run(exec, call);
}

}  // namespace

void ScaledMatMul(Exec& exec, const ScaledMatMulArgs& args) {
  std::string reason = ReasonAgainst(args);
  if (reason.empty()) {
    if (RunByLibrary(exec, args)) return;
    reason = "no algorithm";
  }
  Kept<ScaledProducts>(exec).Refuse(args, reason);
  WidenedProduct(exec, args);
}

}  // namespace trainyard::cuda
