// Matrix products by cuBLASLt. A product has the same bits as long as each stream has one
// workspace.

#include <map>
#include <optional>
#include <tuple>

#include "kernels/cuda/context.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/products/cublaslt_product.h"
#include "kernels/cuda/products/matmul_bias.h"
#include "kernels/elementwise/gelu.h"
#include "kernels/products/matmul_gelu.h"
#include "kernels/products/nf4_parts.h"

namespace trainyard::cuda {
namespace {

// Whether cuBLASLt can add the bias to its sums, or there is no bias. The bias must have the
// result's type and be aligned, because it is read in vectors. f64 is only for tests, and not
// supported here.
bool CanAddBias(const MatMulArgs& args) {
  return args.bias.data == nullptr ||
         (args.bias.dtype == args.c.dtype && args.bias.dtype != DType::kF64 &&
          AlignmentOf(args.bias.data) >= 16);
}

// Whether cuBLASLt can compute GELU, in its tanh form, of its sums, or multiply them by GELU's
// derivative: in bf16, the format in which GPUs train, if all rows are read and written in vectors.
bool CanApplyGelu(const MatMulArgs& args, const void* gelu_input) {
  constexpr int64_t kVector = 8;
  const auto in_vectors = [](const ConstTensor& rows) {
    return rows.shape.back() % kVector == 0 && AlignmentOf(rows.data) >= 16;
  };
  return args.c.dtype == DType::kBF16 && in_vectors(args.a) && in_vectors(args.b) &&
         in_vectors(args.c) && AlignmentOf(gelu_input) >= 16 && CanAddBias(args);
}

class Products {
 public:
  // False: the library has no algorithm, or refuses all of them. Nothing was run.
  bool Run(Exec& exec, const ProductCall& call) {
    std::optional<Product>& product = Find(call);
    return product && library_.Run(exec, call, *product);
  }

 private:
  using Key =
      std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, DType, DType, bool, bool,
                 cublasLtEpilogue_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t>;

  // Returns the product for the call. The first call for a shape, dtypes and alignment prepares it.
  std::optional<Product>& Find(const ProductCall& call) {
    const MatMulArgs& args = call.args;
    const auto [m, n, k] = ShapeOf(args);
    const ColumnsView a = ViewOfA(args), b = ViewOfB(args), c = ViewOfC(args);
    const Key key(m, n, k, a.stride, b.stride, c.stride, args.a.dtype, args.c.dtype, args.trans_a,
                  args.trans_b, call.epilogue(), AlignmentOf(a.data), AlignmentOf(b.data),
                  AlignmentOf(c.data), AlignmentOf(args.bias.data), AlignmentOf(call.gelu_input));
    const auto found = products_.find(key);
    if (found != products_.end()) return found->second;
    return products_.emplace(key, library_.Prepare(call)).first->second;
  }

  CublasLt library_;
  std::map<Key, std::optional<Product>> products_;
};

// The part of the weight lies behind the workspace of its product.
void MatMulNf4(Exec& exec, const MatMulArgs& args) {
  const auto [m, n, k] = ShapeOf(args);
  const size_t size = SizeOf(args.a.dtype);
  const int64_t most = Nf4ColumnsOnGpu({.rows = m, .summed = k}, size);
  const size_t bytes = size_t(PartSizesOf(args, most).elements) * size;
  MultiplyNf4(
      args, most, Scratch(exec, kWorkspaceBytes + bytes) + kWorkspaceBytes,
      [&](const DequantizeNf4Args& part) { DequantizeNf4(exec, part); },
      [&](const MatMulArgs& product) { MatMul(exec, product); });
}

}  // namespace

void MatMul(Exec& exec, const MatMulArgs& args) {
  if (IsInNf4(args)) return MatMulNf4(exec, args);
  CHECK(args.a.dtype == args.b.dtype) << "a weight in " << args.b.dtype << " on a GPU";
  if (CanAddBias(args) && Kept<Products>(exec).Run(exec, {args})) return;
  if (args.bias.data == nullptr) {
    ThrowIfError(CUBLAS_STATUS_NOT_SUPPORTED, {args}, "algorithm");
  }
  FillWithBias(exec, args);
  MatMulArgs rest = args;
  rest.bias = {};
  rest.write = Write::kAdd;
  MatMul(exec, rest);
}

void MatMulGeluForward(Exec& exec, const MatMulGeluForwardArgs& args) {
  MatMulArgs product{.a = args.x, .b = args.w, .c = args.y, .bias = args.bias, .trans_b = true};
  if (CanApplyGelu(product, args.product.data) &&
      Kept<Products>(exec).Run(exec, {product, Activation::kGelu, args.product.data})) {
    return;
  }
  product.c = args.product;
  MatMul(exec, product);
  GeluForward(exec, {.x = args.product, .y = args.y});
}

void MatMulGeluBackward(Exec& exec, const MatMulGeluBackwardArgs& args) {
  const MatMulArgs product{.a = args.dy, .b = args.w, .c = args.dx};
  if (CanApplyGelu(product, args.x.data) &&
      Kept<Products>(exec).Run(exec, {product, Activation::kGeluGradient, args.x.data})) {
    return;
  }
  MatMul(exec, product);
  GeluBackward(exec, {.dy = args.dx, .x = args.x, .dx = args.dx});
}

}  // namespace trainyard::cuda
