#include "bench/products.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "absl/strings/match.h"
#include "common/check.h"
#include "models/program/op.h"

namespace trainyard::bench {
namespace {

using Counts = std::map<StepProduct, int64_t>;

// x [T, K] by w [N, K].
StepProduct Forward(const ValueInfo& x, const ValueInfo& w, int64_t rows, DType result) {
  return {.m = rows,
          .n = w.shape[0],
          .k = w.shape[1],
          .trans_b = true,
          .operands = x.dtype,
          .result = result};
}
// dy [T, N] by w [N, K].
StepProduct InputGradient(const ValueInfo& w, int64_t rows) {
  return {.m = rows, .n = w.shape[1], .k = w.shape[0], .operands = w.dtype, .result = w.dtype};
}
// dy [T, N] by x [T, K].
StepProduct WeightGradient(const Shape& dweight, int64_t rows, DType operands, DType result,
                           bool add) {
  return {.m = dweight[0],
          .n = dweight[1],
          .k = rows,
          .trans_a = true,
          .operands = operands,
          .result = result,
          .add = add};
}

// Chunks of rows: all but the last have as many as the logits.
void CountHead(const Program& program, const Instance& instance, Counts& counts) {
  const ValueInfo& x = program.info(instance.inputs[0]);
  const ValueInfo& w = program.info(instance.inputs[1]);
  const ValueInfo *logits = nullptr, *dw = nullptr;
  bool dx = false;
  for (const Value value : instance.outputs) {
    const ValueInfo& info = program.info(value);
    if (absl::EndsWith(info.name, ".logits")) logits = &info;
    if (absl::EndsWith(info.name, ".dx")) dx = true;
    if (info.kind == ValueKind::kParameterGradient) dw = &info;
  }
  CHECK(logits != nullptr) << instance.op->name() << " without logits";
  const int64_t all = x.shape.rows(), chunk = logits->shape[0];
  for (int64_t begin = 0; begin < all; begin += chunk) {
    const int64_t rows = std::min(chunk, all - begin);
    ++counts[Forward(x, w, rows, logits->dtype)];
    if (dw != nullptr) ++counts[WeightGradient(dw->shape, rows, x.dtype, dw->dtype, begin > 0)];
    if (dx) ++counts[InputGradient(w, rows)];
  }
}

void Count(const Program& program, const Instance& instance, Counts& counts) {
  const absl::string_view name = instance.op->name();
  const auto in = [&](size_t i) -> const ValueInfo& { return program.info(instance.inputs[i]); };
  if (name == "linear_cross_entropy_backward") return CountHead(program, instance, counts);
  if (!absl::StartsWith(name, "matmul")) return;
  // The kernel chooses the sizes of products with a weight in NF4, part by part.
  for (const Value input : instance.inputs) {
    if (program.info(input).dtype == DType::kU8) return;
  }
  const int64_t rows = in(0).shape.rows();
  const ValueInfo& out = program.info(instance.outputs[0]);
  StepProduct product;
  if (name == "matmul_weight_gradient") {
    product = WeightGradient(out.shape, rows, in(0).dtype, out.dtype, false);
  } else if (name == "matmul_input_gradient" || name == "matmul_input_gradient_add" ||
             name == "matmul_gelu_backward") {
    product = InputGradient(in(1), rows);
    product.add = name == "matmul_input_gradient_add";
    if (name == "matmul_gelu_backward") product.gelu = StepProduct::Gelu::kBackward;
  } else {
    CHECK(name == "matmul" || name == "matmul_gelu") << "a product of another kind: " << name;
    product = Forward(in(0), in(1), rows, out.dtype);
    product.bias = instance.inputs.size() > 2;
    if (name == "matmul_gelu") product.gelu = StepProduct::Gelu::kForward;
  }
  ++counts[product];
}

}  // namespace

std::string StepProduct::ToString() const {
  std::ostringstream text;
  text << operands << " to " << result << " M " << m << " N " << n << " K " << k
       << (trans_a ? ", a transposed" : "") << (trans_b ? ", b transposed" : "")
       << (add ? ", added" : "") << (bias ? ", bias" : "");
  if (gelu == Gelu::kForward) text << ", GELU";
  if (gelu == Gelu::kBackward) text << ", GELU's gradient";
  return text.str();
}

std::vector<CountedProduct> ProductsOf(const Program& program) {
  Counts counts;
  for (const Instance& instance : program.instances) {
    if (instance.when != When::kValidation) Count(program, instance, counts);
  }
  std::vector<CountedProduct> products;
  for (const auto& [product, calls] : counts) products.push_back({product, calls});
  std::stable_sort(products.begin(), products.end(), [](const auto& a, const auto& b) {
    return a.product.flops() * double(a.calls) > b.product.flops() * double(b.calls);
  });
  return products;
}

}  // namespace trainyard::bench
