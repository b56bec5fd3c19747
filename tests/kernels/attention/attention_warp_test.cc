// Proves that our kernels of attention on the tensor cores compute all that cuDNN does not take:
// documents, a soft cap, dropout, full masks, sinks, values of another width than keys, and parts
// of all these. Results in bf16 are compared with those of the CPU's kernels in f64. The emulation
// counts the products of tensor cores, which shows that these kernels have run, and not the slower
// ones.

#include <cuda_runtime.h>  // Of the emulation, or the toolkit's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "kernels/attention/cudnn_attention_plan.h"
#include "tests/kernels/attention/attention_forms.h"
#ifdef TRAINYARD_CUDA_EMULATION
#include "emulated_tensor_core.h"
#endif

namespace trainyard::testing {
namespace {

// Expects its scope to multiply on the tensor cores. A GPU does not say.
class ExpectTensorCores {
 public:
  ExpectTensorCores() : before_(Products()) {}
  ~ExpectTensorCores() { EXPECT_TRUE(!before_ || *Products() > *before_) << "other kernels ran"; }
  ExpectTensorCores(const ExpectTensorCores&) = delete;

 private:
  static std::optional<int64_t> Products() {
#ifdef TRAINYARD_CUDA_EMULATION
    return cuda_emulation::TensorProducts();
#else
    return std::nullopt;
#endif
  }
  std::optional<int64_t> before_;
};

// Whether a query of the part sees a key of the part.
bool SeesKeys(const Form& form, const AttentionPart& part) {
  const Bounds bounds(form);
  for (int64_t row = 0; row < form.rows(); ++row) {
    const int64_t i = row % form.sequence;
    if (i < part.q_begin || i >= part.q_begin + part.q_rows) continue;
    const KeyInterval mask = KeysSeen(form.mask, i, form.sequence);
    const bool documents = form.documents > 0;
    const int64_t begin = documents ? bounds.begins.v[size_t(row)] : 0;
    const int64_t end = documents ? bounds.ends.v[size_t(row)] : form.sequence;
    if (std::max({mask.begin, begin, part.kv_begin}) <
        std::min({mask.end, end, part.kv_begin + part.kv_rows})) {
      return true;
    }
  }
  return false;
}

class AttentionWarpTest : public ::testing::TestWithParam<Form> {
 protected:
  const Form form = GetParam();
  const Tensors<bf16> in = Random(form).As<bf16>();
  const Outputs<double> want = Compute(form, in.As<double>(), Kernels(2, &CpuBackend()));
};

TEST_P(AttentionWarpTest, AgreesWithTheCpu) {
  auto got = Poisoned(form, in);
  {
    const ExpectTensorCores forward;
    ComputeForward(form, in, Kernels(), got);
  }
  {
    const ExpectTensorCores backward;
    ComputeBackward(form, in, Kernels(), got);
  }
  ExpectAgrees(form, got, want);
}

TEST_P(AttentionWarpTest, PartsAgreeWithTheCpu) {
  const int64_t chunks = form.sequence % kCudnnTokens == 0 ? form.sequence / kCudnnTokens : 3;
  ASSERT_EQ(form.sequence % chunks, 0);
  int seen = 0;
  const auto got = Parts(form, in, Chunks(form, chunks), [&](const auto& args) {
    std::optional<ExpectTensorCores> each;
    if (SeesKeys(form, args.part)) each.emplace(), ++seen;
    Call(args);
  });
  EXPECT_GE(seen, 2 * chunks) << "each chunk sees itself";
  ExpectAgrees(form, got, want, DType::kBF16);
}

// Heads of each size for which there is a kernel, and rows that InChunks takes. Documents begin and
// end within tiles and at their borders; the last tiles are cut short; heads share keys and values.
// On a GPU, cuDNN computes the context ranks' parts: chunks of 128 queries over as many keys.
constexpr AttentionMask kCausal = {};
INSTANTIATE_TEST_SUITE_P(
    Forms, AttentionWarpTest,
    ::testing::Values(
        Form{"documents", 2, 201, 2, 1, 64, 64, kCausal, 0, false, 4, 0.125, 0, 8},
        Form{"full_documents", 1, 135, 2, 1, 64, 64, kFull, 0, false, 3, 0.125, 0, 8},
        Form{"window_documents", 1, 201, 2, 1, 16, 24, Window(30), 0, false, 3, 0.2, 0, 8},
        Form{"full", 1, 135, 2, 2, 64, 64, kFull, 0, false, 0, 0.125, 0, 8},
        Form{"soft_cap", 1, 135, 2, 1, 64, 64, kCausal, 1.5, false, 0, 0.125, 0, 8},
        Form{"dropout", 2, 99, 2, 1, 64, 64, kCausal, 0, false, 0, 0.125, 0.3, 8},
        Form{"sinks", 1, 135, 2, 1, 64, 64, Window(40), 0, true, 0, 0.125, 0, 8},
        Form{"context_64", 1, 256, 2, 1, 64, 64, kCausal, 0, false, 0, 0.125, 0, 128},
        Form{"context_128", 1, 256, 2, 2, 128, 128, kCausal, 0, false, 0, 0.09, 0, 256},
        Form{"context_window", 1, 256, 1, 1, 64, 64, Window(100), 0, true, 0, 0.125, 0, 64},
        Form{"latent_documents", 1, 135, 2, 2, 192, 128, kCausal, 0, false, 3, 0.07, 0, 8},
        Form{"latent_dropout", 1, 99, 2, 2, 192, 128, kCausal, 0, false, 0, 0.07, 0.5, 16},
        Form{"all_128", 1, 135, 4, 2, 128, 40, Window(50), 3, true, 2, 0.1, 0.6, 24}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace trainyard::testing
