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
#include "kernels/matmul_gelu.h"

namespace trainyard::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{64} << 20;

// What is done to the sums of a product before they are written.
enum class Activation : uint8_t { kNone, kGelu, kGeluGradient };

// A product as cuBLASLt does it. The bias, if any, is one that it can add.
struct Call {
  MatMulArgs args;
  Activation activation = Activation::kNone;
  // What GELU is taken of, [M, N] dtype of c: written with kGelu, read with kGeluGradient.
  const void* gelu_input = nullptr;

  cublasLtEpilogue_t epilogue() const {
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
};

void ThrowIfError(cublasStatus_t status, const Call& call, const char* what) {
  const MatMulArgs& args = call.args;
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const auto [m, n, k] = ShapeOf(args);
  std::ostringstream message;
  message << "cuBLASLt: matmul " << args.a.dtype << " to " << args.c.dtype << " with M " << m
          << " N " << n << " K " << k << (args.trans_a ? ", a transposed" : "")
          << (args.trans_b ? ", b transposed" : "") << (args.bias.data != nullptr ? ", bias" : "")
          << (call.activation == Activation::kGelu           ? ", GELU"
              : call.activation == Activation::kGeluGradient ? ", GELU's gradient"
                                                             : "")
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

// Whether the bias, if there is one, is such that cuBLASLt adds it to its sums: of the result's
// type, which it reads in vectors. f64 is for tests alone, and left out.
bool CanAddBias(const MatMulArgs& args) {
  return args.bias.data == nullptr ||
         (args.bias.dtype == args.c.dtype && args.bias.dtype != DType::kF64 &&
          AlignmentOf(args.bias.data) >= 16);
}

// Whether cuBLASLt takes GELU, in its tanh form, of its sums, or multiplies them by its derivative:
// in bf16, in which GPUs train, of rows that are all read and written in vectors.
bool CanApplyGelu(const MatMulArgs& args, const void* gelu_input) {
  constexpr int64_t kVector = 8;
  const auto in_vectors = [](const ConstTensor& rows) {
    return rows.shape.back() % kVector == 0 && AlignmentOf(rows.data) >= 16;
  };
  return args.c.dtype == DType::kBF16 && in_vectors(args.a) && in_vectors(args.b) &&
         in_vectors(args.c) && AlignmentOf(gelu_input) >= 16 && CanAddBias(args);
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

  void Run(Exec& exec, const Call& call);

 private:
  using Key = std::tuple<int64_t, int64_t, int64_t, DType, DType, bool, bool, cublasLtEpilogue_t,
                         uint32_t, uint32_t, uint32_t, uint32_t, uint32_t>;

  // Prepared by the first call for its shape, dtypes and alignment.
  Product& Find(const Call& call) {
    const MatMulArgs& args = call.args;
    const auto [m, n, k] = ShapeOf(args);
    const Key key(m, n, k, args.a.dtype, args.c.dtype, args.trans_a, args.trans_b, call.epilogue(),
                  AlignmentOf(args.a.data), AlignmentOf(args.b.data), AlignmentOf(args.c.data),
                  AlignmentOf(args.bias.data), AlignmentOf(call.gelu_input));
    const auto found = products_.find(key);
    if (found != products_.end()) return found->second;
    const Product product = Prepare(call);
    return products_.emplace(key, product).first->second;
  }
  Product Prepare(const Call& call) const;
  void ChooseAlgorithm(const Call& call, Product& product) const;

  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, Product> products_;
};

Product Products::Prepare(const Call& call) const {
  const MatMulArgs& args = call.args;
  const auto check = [&](cublasStatus_t status) { ThrowIfError(status, call, "descriptor"); };
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
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, call.epilogue());
  if (args.bias.data != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias.data);
  if (call.gelu_input != nullptr) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, call.gelu_input);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, args.c.shape.back());
  }
  const auto layout = [&](cublasLtMatrixLayoutOpaque_t& to, const ConstTensor& matrix) {
    const int64_t rows = matrix.shape.rows(), columns = matrix.shape.back();
    check(cublasLtMatrixLayoutInit(&to, TypeOf(matrix.dtype), uint64_t(columns), uint64_t(rows),
                                   columns));
  };
  layout(product.left, args.b);
  layout(product.right, args.a);
  layout(product.result, args.c);
  ChooseAlgorithm(call, product);
  return product;
}

void Products::ChooseAlgorithm(const Call& call, Product& product) const {
  const MatMulArgs& args = call.args;
  const auto check = [&](cublasStatus_t status) { ThrowIfError(status, call, "algorithm"); };
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

void Products::Run(Exec& exec, const Call& call) {
  Product& product = Find(call);
  const MatMulArgs& args = call.args;
  const auto point = [&](cublasLtMatmulDescAttributes_t attribute, const void* to) {
    if (to == nullptr) return;
    ThrowIfError(cublasLtMatmulDescSetAttribute(&product.operation, attribute, &to, sizeof(to)),
                 call, "epilogue");
  };
  point(CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias.data);
  point(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, call.gelu_input);
  const Factor alpha(1), beta(args.write == Write::kAdd ? 1 : 0);
  ThrowIfError(cublasLtMatmul(handle_, &product.operation, alpha.As(args.a.dtype), args.b.data,
                              &product.left, args.a.data, &product.right, beta.As(args.a.dtype),
                              args.c.data, &product.result, args.c.data, &product.result,
                              &product.algorithm, Scratch(exec, kWorkspaceBytes), kWorkspaceBytes,
                              static_cast<cudaStream_t>(exec.stream)),
               call, "launch");
}

}  // namespace

void MatMul(Exec& exec, const MatMulArgs& args) {
  if (CanAddBias(args)) return Kept<Products>(exec).Run(exec, {args});
  FillWithBias(exec, args);
  MatMulArgs rest = args;
  rest.bias = {};
  rest.write = Write::kAdd;
  MatMul(exec, rest);
}

void MatMulGeluForward(Exec& exec, const MatMulGeluForwardArgs& args) {
  MatMulArgs product{.a = args.x, .b = args.w, .c = args.y, .bias = args.bias, .trans_b = true};
  if (CanApplyGelu(product, args.product.data)) {
    return Kept<Products>(exec).Run(exec, {product, Activation::kGelu, args.product.data});
  }
  product.c = args.product;
  MatMul(exec, product);
  GeluForward(exec, {.x = args.product, .y = args.y});
}

void MatMulGeluBackward(Exec& exec, const MatMulGeluBackwardArgs& args) {
  const MatMulArgs product{.a = args.dy, .b = args.w, .c = args.dx};
  if (CanApplyGelu(product, args.x.data)) {
    return Kept<Products>(exec).Run(exec, {product, Activation::kGeluGradient, args.x.data});
  }
  MatMul(exec, product);
  GeluBackward(exec, {.dy = args.dx, .x = args.x, .dx = args.dx});
}

}  // namespace trainyard::cuda
