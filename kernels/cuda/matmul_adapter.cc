// Matrix products on cuBLASLt.
//
// cuBLASLt counts along columns, we along rows: a matrix of ours [R, C] is, as it lies in memory,
// its matrix [C, R] with leading dimension C, the transpose. So we have it compute c^T [N, M] =
// B^T [N, K] A^T [K, M], with b on the left and a on the right; an operand that we transpose it
// transposes, too. Its results have the same bits as long as one stream has one workspace.

#include <cublasLt.h>

#include <map>
#include <sstream>
#include <string>
#include <tuple>

#include "kernels/cuda/context.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/matmul_bias.h"
#include "kernels/device/device_error.h"

namespace trainyard::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{64} << 20;

void ThrowIfError(cublasStatus_t status, const MatMulArgs& args, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const auto [m, n, k] = ShapeOf(args);
  std::ostringstream message;
  message << "cuBLASLt: matmul " << args.a.dtype << " to " << args.c.dtype << " with M " << m
          << " N " << n << " K " << k << (args.trans_a ? ", a transposed" : "")
          << (args.trans_b ? ", b transposed" : "") << (args.bias.data != nullptr ? ", bias" : "")
          << ": " << what << ": " << cublasLtGetStatusString(status);
  throw DeviceError(DeviceError::Kind::kDevice, message.str());
}

cudaDataType_t TypeOf(DType dtype) {
  if (dtype == DType::kF64) return CUDA_R_64F;
  return dtype == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF;
}

// Bytes; 256 is all that cuBLASLt asks about.
uint32_t AlignmentOf(const void* data) {
  constexpr uintptr_t kMost = 256;
  const uintptr_t address = reinterpret_cast<uintptr_t>(data) | kMost;
  return uint32_t(address & (~address + 1));
}

// Whether cuBLASLt adds the bias to its sums: one of the result's type, which it reads in vectors.
// f64 is for tests alone, and left out.
bool HasBiasEpilogue(const MatMulArgs& args) {
  return args.bias.data != nullptr && args.bias.dtype == args.c.dtype &&
         args.bias.dtype != DType::kF64 && AlignmentOf(args.bias.data) >= 16;
}

// What a product of some dtype is multiplied by, in the type in which it sums.
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

// A product that is ready to run. Its fields are plain data: nothing has to be released.
struct Product {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t left, right, result;  // b, a, c
  cublasLtMatmulAlgo_t algorithm;
};

class Products {
 public:
  Products() {
    const cublasStatus_t status = cublasLtCreate(&handle_);
    if (status == CUBLAS_STATUS_SUCCESS) return;
    throw DeviceError(DeviceError::Kind::kDevice,
                      std::string("cuBLASLt: ") + cublasLtGetStatusString(status));
  }
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;
  ~Products() { cublasLtDestroy(handle_); }

  cublasLtHandle_t handle() const { return handle_; }

  // Prepared by the first call for its shape, dtypes and alignment.
  Product& Find(const MatMulArgs& args) {
    const auto [m, n, k] = ShapeOf(args);
    const Key key(m, n, k, args.a.dtype, args.c.dtype, args.trans_a, args.trans_b,
                  HasBiasEpilogue(args), AlignmentOf(args.a.data), AlignmentOf(args.b.data),
                  AlignmentOf(args.c.data));
    const auto found = products_.find(key);
    if (found != products_.end()) return found->second;
    const Product product = Prepare(args);
    return products_.emplace(key, product).first->second;
  }

 private:
  using Key = std::tuple<int64_t, int64_t, int64_t, DType, DType, bool, bool, bool, uint32_t,
                         uint32_t, uint32_t>;

  Product Prepare(const MatMulArgs& args) const;
  void ChooseAlgorithm(const MatMulArgs& args, Product& product) const;

  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, Product> products_;
};

Product Products::Prepare(const MatMulArgs& args) const {
  const auto check = [&](cublasStatus_t status) { ThrowIfError(status, args, "descriptor"); };
  Product product;
  // f32 products are of f32 values, not of such that were cut down to TF32.
  const bool f64 = args.a.dtype == DType::kF64;
  check(cublasLtMatmulDescInit(&product.operation, f64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                               f64 ? CUDA_R_64F : CUDA_R_32F));
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    check(cublasLtMatmulDescSetAttribute(&product.operation, attribute, &value, sizeof(value)));
  };
  const auto operation = [](bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  set(CUBLASLT_MATMUL_DESC_TRANSA, operation(args.trans_b));
  set(CUBLASLT_MATMUL_DESC_TRANSB, operation(args.trans_a));
  if (HasBiasEpilogue(args)) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias.data);
  }
  const auto layout = [&](cublasLtMatrixLayoutOpaque_t& to, const ConstTensor& matrix) {
    const int64_t rows = matrix.shape.rows(), columns = matrix.shape.back();
    check(cublasLtMatrixLayoutInit(&to, TypeOf(matrix.dtype), uint64_t(columns), uint64_t(rows),
                                   columns));
  };
  layout(product.left, args.b);
  layout(product.right, args.a);
  layout(product.result, args.c);
  ChooseAlgorithm(args, product);
  return product;
}

void Products::ChooseAlgorithm(const MatMulArgs& args, Product& product) const {
  const auto check = [&](cublasStatus_t status) { ThrowIfError(status, args, "algorithm"); };
  cublasLtMatmulPreferenceOpaque_t wanted;
  check(cublasLtMatmulPreferenceInit(&wanted));
  const auto want = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check(cublasLtMatmulPreferenceSetAttribute(&wanted, attribute, &value, sizeof(value)));
  };
  want(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspaceBytes});
  // Parts of a sum over K meet in f32 (f64), never rounded to the result's type before.
  want(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
       uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  want(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, AlignmentOf(args.b.data));
  want(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, AlignmentOf(args.a.data));
  want(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, AlignmentOf(args.c.data));
  want(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, AlignmentOf(args.c.data));
  cublasLtMatmulHeuristicResult_t best = {};
  int found = 0;
  check(cublasLtMatmulAlgoGetHeuristic(handle_, &product.operation, &product.left, &product.right,
                                       &product.result, &product.result, &wanted, 1, &best,
                                       &found));
  if (found == 0) check(CUBLAS_STATUS_NOT_SUPPORTED);
  check(best.state);
  product.algorithm = best.algo;
}

}  // namespace

void MatMul(Exec& exec, const MatMulArgs& args) {
  if (args.bias.data != nullptr && !HasBiasEpilogue(args)) {
    FillWithBias(exec, args);
    MatMulArgs rest = args;
    rest.bias = {};
    rest.write = Write::kAdd;
    return MatMul(exec, rest);
  }
  Products& products = Kept<Products>(exec);
  Product& product = products.Find(args);
  if (args.bias.data != nullptr) {
    ThrowIfError(
        cublasLtMatmulDescSetAttribute(&product.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                       &args.bias.data, sizeof(args.bias.data)),
        args, "bias");
  }
  const Factor alpha(1), beta(args.write == Write::kAdd ? 1 : 0);
  ThrowIfError(cublasLtMatmul(products.handle(), &product.operation, alpha.As(args.a.dtype),
                              args.b.data, &product.left, args.a.data, &product.right,
                              beta.As(args.a.dtype), args.c.data, &product.result, args.c.data,
                              &product.result, &product.algorithm, Scratch(exec, kWorkspaceBytes),
                              kWorkspaceBytes, static_cast<cudaStream_t>(exec.stream)),
               args, "launch");
}

}  // namespace trainyard::cuda
