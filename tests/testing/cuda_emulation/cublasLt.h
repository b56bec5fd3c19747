// The part of cuBLASLt that kernels/cuda/products/matmul_adapter.cc uses, on the CPU: it looks at
// what the descriptors say, and at nothing else. Found in place of NVIDIA's header, like
// cuda_runtime.h.

#pragma once

#include "cuda_runtime.h"

enum cublasStatus_t {
  CUBLAS_STATUS_SUCCESS,
  CUBLAS_STATUS_NOT_SUPPORTED,
  CUBLAS_STATUS_INVALID_VALUE
};
enum cudaDataType_t { CUDA_R_32F, CUDA_R_64F, CUDA_R_16BF, CUDA_R_8F_E4M3, CUDA_R_8F_E5M2 };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_64F };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
enum cublasLtEpilogue_t {
  CUBLASLT_EPILOGUE_DEFAULT = 1,
  CUBLASLT_EPILOGUE_BIAS = 4,
  CUBLASLT_EPILOGUE_GELU_AUX = 32 | 128,
  CUBLASLT_EPILOGUE_GELU_AUX_BIAS = CUBLASLT_EPILOGUE_GELU_AUX | CUBLASLT_EPILOGUE_BIAS,
  CUBLASLT_EPILOGUE_DGELU = 64 | 128,
};
enum { CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2 };
enum cublasLtMatmulDescAttributes_t {
  CUBLASLT_MATMUL_DESC_TRANSA,
  CUBLASLT_MATMUL_DESC_TRANSB,
  CUBLASLT_MATMUL_DESC_EPILOGUE,
  CUBLASLT_MATMUL_DESC_BIAS_POINTER,
  CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
  CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
  CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
  CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
  CUBLASLT_MATMUL_DESC_A_SCALE_MODE,
  CUBLASLT_MATMUL_DESC_B_SCALE_MODE,
};
enum cublasLtMatmulMatrixScale_t {
  CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F = 0,
  CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F = 3,
  CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F = 4,
  CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F = 5,
};
enum cublasLtMatmulPreferenceAttributes_t {
  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
  CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
};

// A matrix of so many rows and columns, columns contiguous and `stride` elements apart.
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type;
  uint64_t rows, columns;
  int64_t stride;
};
struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t operation_a, operation_b;
  cublasLtEpilogue_t epilogue;
  const void* bias;
  void* gelu_input;
  int64_t gelu_stride;
  const void *a_scales, *b_scales;
  int32_t a_mode, b_mode;  // cublasLtMatmulMatrixScale_t
};
// Alignments of the pointers a, b, c, d that were promised.
struct cublasLtMatmulPreferenceOpaque_t {
  uint64_t workspace_bytes;
  uint32_t reductions;
  uint32_t alignments[4];
};
struct cublasLtMatmulAlgo_t {
  cublasLtMatmulPreferenceOpaque_t promised;
  bool is_refused;  // At the launch.
};
struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  cublasStatus_t state;
};
using cublasLtHandle_t = struct CublasLtEmulation*;

const char* cublasLtGetStatusString(cublasStatus_t status);
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle);
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle);
cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDescOpaque_t* to, cublasComputeType_t compute,
                                      cudaDataType_t scale);
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDescOpaque_t* to,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes);
cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayoutOpaque_t* to, cudaDataType_t type,
                                        uint64_t rows, uint64_t columns, int64_t stride);
cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreferenceOpaque_t* to);
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreferenceOpaque_t* to,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes);
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, const cublasLtMatmulDescOpaque_t* product,
    const cublasLtMatrixLayoutOpaque_t* a, const cublasLtMatrixLayoutOpaque_t* b,
    const cublasLtMatrixLayoutOpaque_t* c, const cublasLtMatrixLayoutOpaque_t* d,
    const cublasLtMatmulPreferenceOpaque_t* wanted, int most,
    cublasLtMatmulHeuristicResult_t* results, int* found);
// d = alpha op(a) op(b) + beta c + bias, the bias over the rows of d; then what the epilogue says.
// Operands in 8 bits are multiplied by their scales (narrow_product.h).
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, const cublasLtMatmulDescOpaque_t* product,
                              const void* alpha, const void* a,
                              const cublasLtMatrixLayoutOpaque_t* a_layout, const void* b,
                              const cublasLtMatrixLayoutOpaque_t* b_layout, const void* beta,
                              const void* c, const cublasLtMatrixLayoutOpaque_t* c_layout, void* d,
                              const cublasLtMatrixLayoutOpaque_t* d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream);
