#include "bench/search_product.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "common/status_macros.h"
#include "kernels/cuda/products/cublaslt_product.h"
#include "kernels/rates/measured_operand.h"

namespace trainyard::bench {
namespace {

constexpr int kAlgorithms = 16;

class RandomOperands {
 public:
  RandomOperands(const Backend& backend, Exec& exec) : backend_(backend), exec_(exec) {}

  absl::StatusOr<Tensor> Make(DType dtype, const Shape& shape) {
    ASSIGN_OR_RETURN(Buffer buffer, backend_.Allocate(size_t(shape.elements()) * SizeOf(dtype)));
    const Tensor tensor{{buffer.data(), dtype, shape}};
    buffers_.push_back(std::move(buffer));
    RETURN_IF_ERROR(FillMeasuredOperand(backend_, exec_, tensor, buffers_.size()));
    return tensor;
  }

 private:
  const Backend& backend_;
  Exec& exec_;
  std::vector<Buffer> buffers_;
};

absl::StatusOr<cuda::ProductCall> CallOf(const StepProduct& p, RandomOperands& operands) {
  const Shape a = p.trans_a ? Shape{p.k, p.m} : Shape{p.m, p.k};
  const Shape b = p.trans_b ? Shape{p.n, p.k} : Shape{p.k, p.n};
  cuda::ProductCall call;
  call.args.trans_a = p.trans_a;
  call.args.trans_b = p.trans_b;
  call.args.write = p.add ? Write::kAdd : Write::kOverwrite;
  ASSIGN_OR_RETURN(call.args.a, operands.Make(p.operands, a));
  ASSIGN_OR_RETURN(call.args.b, operands.Make(p.operands, b));
  ASSIGN_OR_RETURN(call.args.c, operands.Make(p.result, {p.m, p.n}));
  if (p.bias) {
    ASSIGN_OR_RETURN(call.args.bias, operands.Make(p.operands, {p.n}));
  }
  if (p.gelu == StepProduct::Gelu::kNone) return call;
  call.activation = p.gelu == StepProduct::Gelu::kForward ? cuda::Activation::kGelu
                                                          : cuda::Activation::kGeluGradient;
  ASSIGN_OR_RETURN(const Tensor input, operands.Make(p.result, {p.m, p.n}));
  call.gelu_input = input.data;
  return call;
}

}  // namespace

absl::StatusOr<ProductTimes> SearchProduct(const Backend& backend, const StepProduct& product,
                                           double seconds) {
  Exec exec = backend.NewExec(1);
  RandomOperands operands(backend, exec);
  ASSIGN_OR_RETURN(const cuda::ProductCall call, CallOf(product, operands));
  const cuda::CublasLt library;
  std::optional<cuda::Product> prepared = library.Prepare(call);
  if (!prepared) return absl::UnimplementedError("cuBLASLt has no algorithm for it");
  const auto begin = backend.NewEvent(), end = backend.NewEvent();
  const auto time = [&](int runs) {
    begin->Record(exec);
    for (int i = 0; i < runs; ++i) library.Run(exec, call, *prepared);
    end->Record(exec);
    return end->SecondsSince(*begin) / runs;
  };
  ProductTimes times{.best = std::numeric_limits<double>::infinity()};
  const auto algorithms = library.AlgorithmsFor(call, *prepared, kAlgorithms);
  times.of = int(algorithms.size());
  for (int i = 0; i < times.of; ++i) {
    prepared->algorithms = {algorithms[size_t(i)]};
    if (!library.Run(exec, call, *prepared)) continue;  // Its code is loaded.
    const double found = time(int(std::clamp(seconds / std::max(time(1), 1e-6), 1.0, 1000.0)));
    if (times.number == 0) times.first = found;
    if (found < times.best) times.best = found, times.number = i + 1;
  }
  if (times.number == 0) return absl::UnimplementedError("cuBLASLt refuses all its algorithms");
  return times;
}

}  // namespace trainyard::bench
