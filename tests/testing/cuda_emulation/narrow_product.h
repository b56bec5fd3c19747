// What cuBLASLt does with operands in 8 bits on compute capability 9.0, by the rules of cuBLAS
// 13.1's documentation (sections 3.1.4, Narrow Precision Data Types Usage, and 3.4.17,
// cublasLtMatmul). Written from there and not from kernels/cuda/products, whose mistakes it would
// share.

#pragma once

#include <initializer_list>
#include <string>

#include "cublasLt.h"
#include "kernels/device/exec.h"

namespace cuda_emulation {

inline bool IsNarrow(cudaDataType_t type) {
  return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

// Why the library has no algorithm for the types, shapes and scales; "" if it has one. Products of
// other types have no scales.
std::string RefusesNarrow(const cublasLtMatmulDescOpaque_t& product,
                          const cublasLtMatrixLayoutOpaque_t& a,
                          const cublasLtMatrixLayoutOpaque_t& b,
                          const cublasLtMatrixLayoutOpaque_t& d);

// CHECKs the alignment of matrices and scales, and that the scales are on the device.
void CheckAddresses(const cublasLtMatmulDescOpaque_t& product,
                    std::initializer_list<const void*> matrices);

struct NarrowMatrix {
  cublasLtMatrixLayoutOpaque_t layout;
  const void* values;
};
struct NarrowProduct {
  cublasLtMatmulDescOpaque_t product;
  NarrowMatrix a, b, d;
  bool add;  // To d.
};
void MultiplyNarrow(trainyard::Exec& host, const NarrowProduct& of);

}  // namespace cuda_emulation
