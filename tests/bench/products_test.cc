#include "bench/products.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "bench/search_product.h"
#include "bench/step_case.h"
#include "kernels/cuda/cuda.h"
#include "models/program/op.h"
#include "train/step/rank_engine.h"

namespace trainyard::bench {
namespace {

Program ProgramOf(const StepCase& step) {
  const ResolvedCase resolved = *Resolve(step);
  return PlanRank(resolved.job, resolved.model, 0, DeviceKind::kCuda)->program;
}

// What the ops say of themselves.
double ProductFlops(const Program& program) {
  double flops = 0;
  for (const Instance& instance : program.instances) {
    const absl::string_view name = instance.op->name();
    if (instance.when == When::kValidation) continue;
    if (!absl::StartsWith(name, "matmul") && !absl::StartsWith(name, "linear_cross")) continue;
    flops += instance.op->CostOf(program, instance).flops;
  }
  return flops;
}

TEST(Products, AreAllOfAStep) {
  for (const char* model : {"gpt2-124m", "llama3.2-1b", "llama2-7b"}) {
    const Program program = ProgramOf({.model = model, .micro = 1, .sequence = 1024, .layers = 2});
    double flops = 0;
    for (const auto& [product, calls] : ProductsOf(program)) {
      flops += double(calls) * product.flops();
    }
    EXPECT_GT(flops, 0);
    EXPECT_DOUBLE_EQ(flops, ProductFlops(program)) << model;
  }
}

TEST(Products, AreNamedByShapeAndWhatIsDoneToThem) {
  const std::vector<CountedProduct> products =
      ProductsOf(ProgramOf({.model = "gpt2-124m", .micro = 16, .sequence = 1024}));
  const auto calls = [&](const std::string& name) {
    for (const CountedProduct& counted : products) {
      if (counted.product.ToString() == name) return counted.calls;
    }
    return int64_t{0};
  };
  EXPECT_EQ(calls("bf16 to bf16 M 16384 N 3072 K 768, b transposed, bias, GELU"), 12);
  EXPECT_EQ(calls("bf16 to bf16 M 16384 N 3072 K 768, GELU's gradient"), 12);
  EXPECT_EQ(calls("bf16 to f32 M 3072 N 768 K 16384, a transposed"), 12);
  // On a GPU, 1 GiB of logits has 10,672 rows.
  EXPECT_EQ(calls("bf16 to bf16 M 8192 N 50304 K 768, b transposed"), 2);
  EXPECT_EQ(calls("bf16 to f32 M 50304 N 768 K 8192, a transposed, added"), 1);
}

TEST(SearchProduct, RunsEveryAlgorithmThatTheLibraryNames) {
  const Backend& backend = **CudaBackend();
  for (StepProduct product :
       {StepProduct{.m = 32, .n = 16, .k = 8, .trans_b = true, .bias = true},
        StepProduct{.m = 16, .n = 8, .k = 32, .trans_a = true, .result = DType::kF32, .add = true},
        StepProduct{.m = 32, .n = 16, .k = 8, .trans_b = true, .gelu = StepProduct::Gelu::kForward},
        StepProduct{.m = 32, .n = 16, .k = 8, .gelu = StepProduct::Gelu::kBackward}}) {
    const ProductTimes times = *SearchProduct(backend, product, 0);
    EXPECT_EQ(times.of, 3) << product.ToString();  // As many as the emulation names.
    EXPECT_GT(times.best, 0);
    EXPECT_LE(times.best, times.first);
    EXPECT_GE(times.number, 1);
  }
}

}  // namespace
}  // namespace trainyard::bench
