#include "narrow_product.h"

#include <vector>

#include "common/check.h"
#include "kernels/cpu/kernels.h"
#include "kernels/device/narrow.h"
#include "kernels/products/matmul.h"

namespace cuda_emulation {
namespace {

using trainyard::DType;

constexpr uint64_t kVector = 16;  // Bytes of an address, and numbers of a dim.
constexpr uint64_t kBlock = 128;

bool IsOfBlocks(int32_t mode) {
  return mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F ||
         mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
}

bool IsKnown(int32_t mode) {
  return mode == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F ||
         mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F || IsOfBlocks(mode);
}

// An operand [K, M] or [K, N] in memory column by column, as f32 and times its scales.
std::vector<float> Widened(const NarrowMatrix& matrix, const void* scales, int32_t mode) {
  const uint64_t k = matrix.layout.rows, n = matrix.layout.columns;
  const uint64_t groups = (k + kBlock - 1) / kBlock, padded = (groups + 3) / 4 * 4;
  const auto* const values = static_cast<const uint8_t*>(matrix.values);
  const auto* const factors = static_cast<const float*>(scales);
  const bool e4m3 = matrix.layout.type == CUDA_R_8F_E4M3;
  std::vector<float> wide(k * n);
  for (uint64_t j = 0; j < n; ++j) {
    for (uint64_t l = 0; l < k; ++l) {
      uint64_t scale = 0;
      if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F) scale = j;
      if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F) scale = l / kBlock * n + j;
      if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F) {
        scale = j / kBlock * padded + l / kBlock;
      }
      const uint8_t bits = values[j * k + l];
      wide[j * k + l] = factors[scale] * (e4m3 ? trainyard::ToFloat<trainyard::E4M3>(bits)
                                               : trainyard::ToFloat<trainyard::E5M2>(bits));
    }
  }
  return wide;
}

}  // namespace

std::string RefusesNarrow(const cublasLtMatmulDescOpaque_t& product,
                          const cublasLtMatrixLayoutOpaque_t& a,
                          const cublasLtMatrixLayoutOpaque_t& b,
                          const cublasLtMatrixLayoutOpaque_t& d) {
  if (!IsNarrow(a.type) && !IsNarrow(b.type)) {
    return product.a_scales != nullptr || product.b_scales != nullptr
               ? "scales of operands that are not in 8 bits"
               : "";
  }
  if (!IsNarrow(a.type) || !IsNarrow(b.type)) return "one operand alone in 8 bits";
  if (a.type == CUDA_R_8F_E5M2 && b.type == CUDA_R_8F_E5M2) return "e5m2 times e5m2";
  if (product.compute != CUBLAS_COMPUTE_32F || product.scale != CUDA_R_32F) return "sums";
  if (product.operation_a != CUBLAS_OP_T || product.operation_b != CUBLAS_OP_N) {
    return "a format that is not TN";
  }
  if (d.type != CUDA_R_16BF && d.type != CUDA_R_32F) return "the type of the result";
  for (const uint64_t dim : {a.rows, a.columns, b.columns, d.rows, d.columns}) {
    if (dim % kVector != 0) return "a dim that is no multiple of 16";
  }
  const bool bias = product.epilogue == CUBLASLT_EPILOGUE_BIAS;
  if (product.epilogue != CUBLASLT_EPILOGUE_DEFAULT && !bias) return "the epilogue";
  // A bias has the type of the result, unless the descriptor says so; f32 has none.
  if (bias && d.type != CUDA_R_16BF) return "a bias that is not bf16";
  const int32_t a_mode = product.a_mode, b_mode = product.b_mode;
  if (!IsKnown(a_mode) || !IsKnown(b_mode)) return "an unknown mode of scales";
  const bool blocks = IsOfBlocks(a_mode) && IsOfBlocks(b_mode);
  if (a_mode != b_mode && !blocks) return "two modes of scales";
  if (a_mode == b_mode && a_mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F) {
    return "squares times squares";
  }
  return "";
}

void CheckAddresses(const cublasLtMatmulDescOpaque_t& product,
                    std::initializer_list<const void*> matrices) {
  const auto aligned = [](const void* data) {
    return reinterpret_cast<uintptr_t>(data) % kVector == 0;
  };
  for (const void* matrix : matrices) CHECK(aligned(matrix)) << "a matrix at " << matrix;
  for (const void* scales : {product.a_scales, product.b_scales}) {
    CHECK(scales != nullptr) << "an operand in 8 bits without scales";
    CHECK(IsOnDevice(scales, sizeof(float))) << "scales at " << scales;
  }
  CHECK(!IsOfBlocks(product.a_mode) || (aligned(product.a_scales) && aligned(product.b_scales)))
      << "scales of blocks at " << product.a_scales << " and " << product.b_scales;
}

void MultiplyNarrow(trainyard::Exec& host, const NarrowProduct& of) {
  const int64_t k = int64_t(of.a.layout.rows);
  const int64_t m = int64_t(of.b.layout.columns), n = int64_t(of.a.layout.columns);  // Ours.
  const std::vector<float> left = Widened(of.a, of.product.a_scales, of.product.a_mode);
  const std::vector<float> right = Widened(of.b, of.product.b_scales, of.product.b_mode);
  std::vector<float> sums(size_t(m * n));
  trainyard::cpu::MatMul(host, {.a = {right.data(), DType::kF32, {m, k}},
                                .b = {left.data(), DType::kF32, {n, k}},
                                .c = trainyard::Tensor{{sums.data(), DType::kF32, {m, n}}},
                                .trans_b = true});
  const bool f32 = of.d.layout.type == CUDA_R_32F;
  auto* const wide = static_cast<float*>(const_cast<void*>(of.d.values));
  auto* const rounded = static_cast<trainyard::bf16*>(const_cast<void*>(of.d.values));
  const bool biased = of.product.epilogue == CUBLASLT_EPILOGUE_BIAS;
  const auto* const bias = static_cast<const trainyard::bf16*>(of.product.bias);
  for (int64_t i = 0; i < m * n; ++i) {
    float sum = sums[size_t(i)] + (biased ? float(bias[i % n]) : 0.0f);
    if (of.add) sum += f32 ? wide[i] : float(rounded[i]);
    if (f32) {
      wide[i] = sum;
    } else {
      rounded[i] = trainyard::bf16(sum);
    }
  }
}

}  // namespace cuda_emulation
