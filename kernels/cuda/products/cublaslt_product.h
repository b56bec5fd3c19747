// A matrix product by cuBLASLt: described, prepared, run.
//
// cuBLASLt stores matrices by columns, and we store them by rows: our matrix [R, C] in memory is
// its matrix [C, R] with leading dimension C, the transpose. So cuBLASLt computes the following
// product, with b on the left and a on the right. It transposes the operands that we transpose.
//
//   c^T [N, M] = B^T [N, K] A^T [K, M]

#pragma once

#include <cublasLt.h>

#include <optional>
#include <vector>

#include "kernels/device/exec.h"
#include "kernels/products/matmul.h"

namespace trainyard::cuda {

// Applied to the sums of a product before they are written.
enum class Activation : uint8_t { kNone, kGelu, kGeluGradient };

// Bytes of the workspace of a product.
inline constexpr size_t kWorkspaceBytes = size_t{64} << 20;

// The scales of an operand in 8 bits, on the device, in the order that cuBLASLt reads.
struct ProductScales {
  const void* data = nullptr;  // Null: the operand has none.
  cublasLtMatmulMatrixScale_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
};

// One product. If it has a bias, cuBLASLt must be able to add it. Operands in 8 bits have scales.
struct ProductCall {
  MatMulArgs args;
  Activation activation = Activation::kNone;
  // The argument of GELU, [M, N] dtype of c: written with kGelu, read with kGeluGradient.
  const void* gelu_input = nullptr;
  ProductScales a_scales = {}, b_scales = {};

  cublasLtEpilogue_t epilogue() const;
};

// The alignment in bytes, at most 256: cuBLASLt asks for no more.
uint32_t AlignmentOf(const void* data);

// A product that is ready to run. Its fields are plain data, so nothing has to be released.
struct Product {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t left, right, result;  // b, a, c
  std::vector<cublasLtMatmulAlgo_t> algorithms;  // The first is used. Run drops what is refused.
};

// Throws a DeviceError that describes the product, unless `status` is CUBLAS_STATUS_SUCCESS.
void ThrowIfError(cublasStatus_t status, const ProductCall& call, const char* what);

// A handle of the library. A failure throws a DeviceError that describes the product.
class CublasLt {
 public:
  CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;
  ~CublasLt() { cublasLtDestroy(handle_); }

  // Prepares a product with the library's algorithms, the fastest by its own estimate first.
  // Absent: the library has none, for example for this epilogue.
  std::optional<Product> Prepare(const ProductCall& call) const;
  // Returns those of the library's first `most` algorithms that it does not refuse, the fastest by
  // its own estimate first.
  std::vector<cublasLtMatmulAlgo_t> AlgorithmsFor(const ProductCall& call, Product& product,
                                                  int most) const;
  // Runs a product that was prepared for such a call, by the first algorithm that the library does
  // not refuse at the launch, too. False: all were refused, and nothing was run. Sets the addresses
  // of the product's epilogue and of its scales. The workspace is the beginning of Scratch.
  bool Run(Exec& exec, const ProductCall& call, Product& product) const;

 private:
  cublasLtHandle_t handle_ = nullptr;
};

}  // namespace trainyard::cuda
