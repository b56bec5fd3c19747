#include "kernels/cuda/products/cublaslt_product.h"

#include <sstream>
#include <string>

#include "kernels/cuda/context.h"
#include "kernels/cuda/failure_text.h"
#include "kernels/device/device_error.h"

namespace trainyard::cuda {
namespace {

constexpr int kTried = 8;  // Algorithms, of which the first that is not refused is used.

cudaDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return CUDA_R_64F;
    case DType::kF32:
      return CUDA_R_32F;
    case DType::kE4M3:
      return CUDA_R_8F_E4M3;
    case DType::kE5M2:
      return CUDA_R_8F_E5M2;
    default:
      return CUDA_R_16BF;
  }
}

// A factor of a product, in the type in which the product sums.
class Factor {
 public:
  explicit Factor(double value) : f32_(float(value)), f64_(value) {}
  const void* As(DType dtype) const {
    return dtype == DType::kF64 ? static_cast<const void*>(&f64_) : &f32_;
  }

 private:
  float f32_;
  double f64_;
};

}  // namespace

void ThrowIfError(cublasStatus_t status, const ProductCall& call, const char* what) {
  const MatMulArgs& args = call.args;
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const auto [m, n, k] = ShapeOf(args);
  std::ostringstream message;
  message << "cuBLASLt: matmul " << args.a.dtype << " times " << args.b.dtype << " to "
          << args.c.dtype << " with M " << m << " N " << n << " K " << k
          << (args.trans_a ? ", a transposed" : "") << (args.trans_b ? ", b transposed" : "")
          << (args.bias.data != nullptr ? ", bias" : "")
          << (call.activation == Activation::kGelu           ? ", GELU"
              : call.activation == Activation::kGeluGradient ? ", GELU's gradient"
                                                             : "")
          << ": " << what << ": " << cublasLtGetStatusString(status);
  throw DeviceError(DeviceError::Kind::kDevice, WithFailure(message.str()));
}

uint32_t AlignmentOf(const void* data) {
  constexpr uintptr_t kMost = 256;
  const uintptr_t address = reinterpret_cast<uintptr_t>(data) | kMost;
  return uint32_t(address & (~address + 1));
}

cublasLtEpilogue_t ProductCall::epilogue() const {
  const bool bias = args.bias.data != nullptr;
  switch (activation) {
    case Activation::kGelu:
      return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case Activation::kGeluGradient:
      return CUBLASLT_EPILOGUE_DGELU;
    case Activation::kNone:
      break;
  }
  return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

CublasLt::CublasLt() {
  const cublasStatus_t status = cublasLtCreate(&handle_);
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(DeviceError::Kind::kDevice,
                    std::string("cuBLASLt: ") + cublasLtGetStatusString(status));
}

std::optional<Product> CublasLt::Prepare(const ProductCall& call) const {
  const MatMulArgs& args = call.args;
  const auto check = [&](cublasStatus_t status) { ThrowIfError(status, call, "descriptor"); };
  Product product;
  // f32 products use f32 values, not values that were cut to TF32.
  const bool f64 = args.a.dtype == DType::kF64;
  check(cublasLtMatmulDescInit(&product.operation, f64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                               f64 ? CUDA_R_64F : CUDA_R_32F));
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    check(cublasLtMatmulDescSetAttribute(&product.operation, attribute, &value, sizeof(value)));
  };
  const auto operation = [](bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  set(CUBLASLT_MATMUL_DESC_TRANSA, operation(args.trans_b));
  set(CUBLASLT_MATMUL_DESC_TRANSB, operation(args.trans_a));
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, call.epilogue());
  if (args.bias.data != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias.data);
  if (call.gelu_input != nullptr) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, call.gelu_input);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, ViewOfC(args).stride);
  }
  const auto set_scales = [&](cublasLtMatmulDescAttributes_t mode,
                              cublasLtMatmulDescAttributes_t pointer, const ProductScales& scales) {
    if (scales.data == nullptr) return;
    set(mode, int32_t(scales.mode));
    set(pointer, scales.data);
  };
  set_scales(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
             call.b_scales);
  set_scales(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
             call.a_scales);
  const auto layout = [&](cublasLtMatrixLayoutOpaque_t& to, const ColumnsView& matrix) {
    check(cublasLtMatrixLayoutInit(&to, TypeOf(matrix.dtype), uint64_t(matrix.columns),
                                   uint64_t(matrix.rows), matrix.stride));
  };
  layout(product.left, ViewOfB(args));
  layout(product.right, ViewOfA(args));
  layout(product.result, ViewOfC(args));
  product.algorithms = AlgorithmsFor(call, product, kTried);
  if (product.algorithms.empty()) return std::nullopt;
  return product;
}

std::vector<cublasLtMatmulAlgo_t> CublasLt::AlgorithmsFor(const ProductCall& call, Product& product,
                                                          int most) const {
  const MatMulArgs& args = call.args;
  const auto check = [&](cublasStatus_t status) { ThrowIfError(status, call, "algorithm"); };
  cublasLtMatmulPreferenceOpaque_t wanted;
  check(cublasLtMatmulPreferenceInit(&wanted));
  const auto want = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check(cublasLtMatmulPreferenceSetAttribute(&wanted, attribute, &value, sizeof(value)));
  };
  want(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspaceBytes});
  // Partial sums over K are added in f32 (f64), and never rounded to the result's type before.
  want(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
       uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  want(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, AlignmentOf(ViewOfB(args).data));
  want(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, AlignmentOf(ViewOfA(args).data));
  want(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, AlignmentOf(ViewOfC(args).data));
  want(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, AlignmentOf(ViewOfC(args).data));
  std::vector<cublasLtMatmulHeuristicResult_t> results(size_t(most),
                                                       cublasLtMatmulHeuristicResult_t{});
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_, &product.operation, &product.left, &product.right, &product.result, &product.result,
      &wanted, most, results.data(), &found);
  // The library calls some combinations of scales, types and epilogues invalid, and others not
  // supported. Neither has an algorithm.
  const bool refused = status == CUBLAS_STATUS_NOT_SUPPORTED ||
                       (call.a_scales.data != nullptr && status == CUBLAS_STATUS_INVALID_VALUE);
  if (!refused) check(status);
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < found; ++i) {
    if (results[size_t(i)].state == CUBLAS_STATUS_SUCCESS) {
      algorithms.push_back(results[size_t(i)].algo);
    }
  }
  return algorithms;
}

bool CublasLt::Run(Exec& exec, const ProductCall& call, Product& product) const {
  const MatMulArgs& args = call.args;
  const auto point = [&](cublasLtMatmulDescAttributes_t attribute, const void* to) {
    if (to == nullptr) return;
    ThrowIfError(cublasLtMatmulDescSetAttribute(&product.operation, attribute, &to, sizeof(to)),
                 call, "address");
  };
  point(CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias.data);
  point(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, call.gelu_input);
  point(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, call.b_scales.data);
  point(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, call.a_scales.data);
  const Factor alpha(1), beta(args.write == Write::kAdd ? 1 : 0);
  void* const c = const_cast<std::byte*>(ViewOfC(args).data);
  while (!product.algorithms.empty()) {
    const cublasStatus_t status = cublasLtMatmul(
        handle_, &product.operation, alpha.As(args.a.dtype), ViewOfB(args).data, &product.left,
        ViewOfA(args).data, &product.right, beta.As(args.a.dtype), c, &product.result, c,
        &product.result, &product.algorithms.front(), Scratch(exec, kWorkspaceBytes),
        kWorkspaceBytes, static_cast<cudaStream_t>(exec.stream));
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) {
      ThrowIfError(status, call, "launch");
      return true;
    }
    product.algorithms.erase(product.algorithms.begin());
  }
  return false;
}

}  // namespace trainyard::cuda
