// A matrix product as cuBLASLt does it: described, prepared, run.
//
// cuBLASLt counts along columns, we along rows: a matrix of ours [R, C] is, as it lies in memory,
// its matrix [C, R] with leading dimension C, the transpose. So we have it compute c^T [N, M] =
// B^T [N, K] A^T [K, M], with b on the left and a on the right; an operand that we transpose it
// transposes, too.

#pragma once

#include <cublasLt.h>

#include <vector>

#include "kernels/device/exec.h"
#include "kernels/matmul.h"

namespace trainyard::cuda {

// What is done to the sums of a product before they are written.
enum class Activation : uint8_t { kNone, kGelu, kGeluGradient };

// The bias, if any, is one that cuBLASLt can add.
struct ProductCall {
  MatMulArgs args;
  Activation activation = Activation::kNone;
  // What GELU is taken of, [M, N] dtype of c: written with kGelu, read with kGeluGradient.
  const void* gelu_input = nullptr;

  cublasLtEpilogue_t epilogue() const;
};

// Bytes; 256 is all that cuBLASLt asks about.
uint32_t AlignmentOf(const void* data);

// A product that is ready to run. Its fields are plain data: nothing has to be released.
struct Product {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t left, right, result;  // b, a, c
  cublasLtMatmulAlgo_t algorithm;
};

// A handle of the library. What fails throws a DeviceError that describes the product.
class CublasLt {
 public:
  CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;
  ~CublasLt() { cublasLtDestroy(handle_); }

  // With the algorithm that the library holds for the fastest.
  Product Prepare(const ProductCall& call) const;
  // At least one and at most `most`, in the order of the speed that the library expects.
  std::vector<cublasLtMatmulAlgo_t> AlgorithmsFor(const ProductCall& call, Product& product,
                                                  int most) const;
  // `product`: prepared for such a call. Sets the addresses of its epilogue.
  void Run(Exec& exec, const ProductCall& call, Product& product) const;

 private:
  cublasLtHandle_t handle_ = nullptr;
};

}  // namespace trainyard::cuda
