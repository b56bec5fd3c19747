#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/check.h"
#include "cublasLt.h"
#include "kernels/cpu/kernels.h"
#include "kernels/elementwise/cast.h"
#include "kernels/elementwise/gelu.h"
#include "kernels/products/matmul.h"
#include "narrow_product.h"

struct CublasLtEmulation {
  std::shared_ptr<trainyard::Exec> host = std::make_shared<trainyard::Exec>();  // Work keeps it.
};

namespace {

using trainyard::DType;

DType DTypeOf(cudaDataType_t type) {
  if (type == CUDA_R_64F) return DType::kF64;
  return type == CUDA_R_32F ? DType::kF32 : DType::kBF16;
}

template <typename T>
void Set(T& to, const void* value, size_t bytes) {
  CHECK(bytes == sizeof(T)) << bytes << " bytes for an attribute of " << sizeof(T);
  std::memcpy(&to, value, bytes);
}

// Columns of theirs are rows of ours, which may be a part of longer ones.
trainyard::Shape ShapeOf(const cublasLtMatrixLayoutOpaque_t& layout) {
  CHECK(layout.stride >= int64_t(layout.rows))
      << "columns of " << layout.rows << " rows are " << layout.stride << " elements apart";
  return {int64_t(layout.columns), layout.stride};
}
trainyard::ColumnRange ColumnsOf(const cublasLtMatrixLayoutOpaque_t& layout) {
  return {.begin = 0, .count = int64_t(layout.rows)};
}

double Scalar(const cublasLtMatmulDescOpaque_t& product, const void* value) {
  return product.scale == CUDA_R_64F ? *static_cast<const double*>(value)
                                     : *static_cast<const float*>(value);
}

// The product and GELU of it, or its gradient, from sums that nobody rounded before.
void ApplyGelu(trainyard::Exec& host, trainyard::MatMulArgs args, bool gradient, void* gelu_input) {
  using trainyard::Tensor;
  CHECK(args.c_columns.count == args.c.shape.back()) << "GELU of some columns";
  const Tensor result = args.c, rounded{{gelu_input, result.dtype, result.shape}};
  std::vector<float> sums(size_t(result.elements())), inputs = sums;
  const Tensor f32{{sums.data(), DType::kF32, result.shape}};
  const Tensor x{{inputs.data(), DType::kF32, result.shape}};
  args.c = f32;
  args.c_columns = {};
  trainyard::cpu::MatMul(host, args);
  if (gradient) {
    trainyard::cpu::Cast(host, {.x = rounded, .y = x});
    trainyard::cpu::GeluBackward(host, {.dy = f32, .x = x, .dx = f32});
  } else {
    trainyard::cpu::Cast(host, {.x = f32, .y = rounded});
    trainyard::cpu::GeluForward(host, {.x = f32, .y = f32});
  }
  trainyard::cpu::Cast(host, {.x = f32, .y = result});
}

// The library may have no algorithm for an epilogue. Here it has none for some widths.
bool HasNoAlgorithm(const cublasLtMatmulDescOpaque_t& product,
                    const cublasLtMatrixLayoutOpaque_t& result) {
  return product.epilogue != CUBLASLT_EPILOGUE_DEFAULT && result.rows % 5 == 0;
}

}  // namespace

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : "not supported";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new CublasLtEmulation;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDescOpaque_t* to, cublasComputeType_t compute,
                                      cudaDataType_t scale) {
  *to = {.compute = compute,
         .scale = scale,
         .operation_a = CUBLAS_OP_N,
         .operation_b = CUBLAS_OP_N,
         .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
         .bias = nullptr,
         .gelu_input = nullptr,
         .gelu_stride = 0,
         .a_scales = nullptr,
         .b_scales = nullptr,
         .a_mode = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F,
         .b_mode = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDescOpaque_t* to,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      Set(to->operation_a, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
      Set(to->operation_b, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      Set(to->epilogue, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      Set(to->bias, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      Set(to->gelu_input, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      Set(to->gelu_stride, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      Set(to->a_scales, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      Set(to->b_scales, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE:
      Set(to->a_mode, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE:
      Set(to->b_mode, value, bytes);
      break;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayoutOpaque_t* to, cudaDataType_t type,
                                        uint64_t rows, uint64_t columns, int64_t stride) {
  *to = {type, rows, columns, stride};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreferenceOpaque_t* to) {
  *to = {.workspace_bytes = 0, .reductions = 0, .alignments = {256, 256, 256, 256}};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreferenceOpaque_t* to,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      Set(to->workspace_bytes, value, bytes);
      break;
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      Set(to->reductions, value, bytes);
      break;
    default:
      Set(to->alignments[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, const cublasLtMatmulDescOpaque_t* product,
    const cublasLtMatrixLayoutOpaque_t* a, const cublasLtMatrixLayoutOpaque_t* b,
    const cublasLtMatrixLayoutOpaque_t*, const cublasLtMatrixLayoutOpaque_t* result,
    const cublasLtMatmulPreferenceOpaque_t* wanted, int most,
    cublasLtMatmulHeuristicResult_t* results, int* found) {
  *found = 0;
  if (HasNoAlgorithm(*product, *result)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!cuda_emulation::RefusesNarrow(*product, *a, *b, *result).empty()) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  *found = std::min(most, 3);
  for (int i = 0; i < *found; ++i) {
    results[i] = {.algo = {*wanted, false}, .state = CUBLAS_STATUS_SUCCESS};
  }
  // The first may be refused, and must then not be used.
  if (result->rows % 3 == 0) {
    results[0].algo.promised.workspace_bytes = SIZE_MAX;
    results[0].state = CUBLAS_STATUS_NOT_SUPPORTED;
  }
  // A launch may be refused, too: of some products by one algorithm, of some with a bias by all.
  const bool by_all = product->epilogue == CUBLASLT_EPILOGUE_BIAS && result->rows % 7 == 0;
  for (int i = 0; i < (by_all ? *found : std::min(2, *found)); ++i) {
    results[i].algo.is_refused = by_all || result->rows % 5 == 0;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, const cublasLtMatmulDescOpaque_t* product,
                              const void* alpha, const void* a,
                              const cublasLtMatrixLayoutOpaque_t* a_layout, const void* b,
                              const cublasLtMatrixLayoutOpaque_t* b_layout, const void* beta,
                              const void* c, const cublasLtMatrixLayoutOpaque_t* c_layout, void* d,
                              const cublasLtMatrixLayoutOpaque_t* d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void*, size_t workspace_bytes,
                              cudaStream_t stream) {
  if (algorithm->is_refused) return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool f64 = a_layout->type == CUDA_R_64F;
  CHECK((product->compute == CUBLAS_COMPUTE_64F) == f64 && (product->scale == CUDA_R_64F) == f64);
  CHECK(c == d && ShapeOf(*c_layout) == ShapeOf(*d_layout) && c_layout->type == d_layout->type);
  CHECK(!HasNoAlgorithm(*product, *d_layout)) << "epilogue " << product->epilogue;
  CHECK(workspace_bytes >= algorithm->promised.workspace_bytes);
  const void* const pointers[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i) {
    CHECK(reinterpret_cast<uintptr_t>(pointers[i]) % algorithm->promised.alignments[i] == 0)
        << "operand " << i << " was said to be aligned to " << algorithm->promised.alignments[i];
  }
  const double factor = Scalar(*product, beta);
  CHECK(Scalar(*product, alpha) == 1 && (factor == 0 || factor == 1));
  const std::string refused =
      cuda_emulation::RefusesNarrow(*product, *a_layout, *b_layout, *d_layout);
  CHECK(refused.empty()) << refused;
  if (cuda_emulation::IsNarrow(a_layout->type)) {
    cuda_emulation::CheckAddresses(*product, {a, b, c, d});
    const cuda_emulation::NarrowProduct of = {.product = *product,
                                              .a = {*a_layout, a},
                                              .b = {*b_layout, b},
                                              .d = {*d_layout, d},
                                              .add = factor == 1};
    cuda_emulation::Enqueue(stream, [host = handle->host, of] { MultiplyNarrow(*host, of); });
    return CUBLAS_STATUS_SUCCESS;
  }
  // Transposed, the product has its operands the other way round.
  trainyard::MatMulArgs args = {
      .a = {b, DTypeOf(b_layout->type), ShapeOf(*b_layout)},
      .b = {a, DTypeOf(a_layout->type), ShapeOf(*a_layout)},
      .c = trainyard::Tensor{{d, DTypeOf(d_layout->type), ShapeOf(*d_layout)}},
      .trans_a = product->operation_b == CUBLAS_OP_T,
      .trans_b = product->operation_a == CUBLAS_OP_T,
      .write = factor == 1 ? trainyard::Write::kAdd : trainyard::Write::kOverwrite,
      .a_columns = ColumnsOf(*b_layout),
      .b_columns = ColumnsOf(*a_layout),
      .c_columns = ColumnsOf(*d_layout)};
  constexpr int kAux = 128;
  const bool gelu = product->epilogue & kAux,
             gradient = product->epilogue == CUBLASLT_EPILOGUE_DGELU;
  if (product->epilogue & CUBLASLT_EPILOGUE_BIAS) {
    CHECK(reinterpret_cast<uintptr_t>(product->bias) % 16 == 0 && !f64) << "bias";
    args.bias = {product->bias, args.c.dtype, {int64_t(d_layout->rows)}};
  }
  Check(args);
  void* const gelu_input = product->gelu_input;
  if (gelu) {
    CHECK(d_layout->type == CUDA_R_16BF && factor == 0) << "GELU of another type, or added";
    CHECK(gelu_input != nullptr && reinterpret_cast<uintptr_t>(gelu_input) % 16 == 0) << "aux";
    CHECK(product->gelu_stride == int64_t(d_layout->rows) && product->gelu_stride % 8 == 0)
        << "rows of aux are " << product->gelu_stride << " elements apart";
  }
  cuda_emulation::Enqueue(stream, [host = handle->host, args, gelu, gradient, gelu_input] {
    if (gelu) return ApplyGelu(*host, args, gradient, gelu_input);
    trainyard::cpu::MatMul(*host, args);
  });
  return CUBLAS_STATUS_SUCCESS;
}
