// Proves the graphs, the pointers and the choices with which attention calls cuDNN. On the emulated
// device, cuDNN is what its graphs say (tests/testing/cudnn_emulation). The calls of models, whole
// and in parts, must have the results of the CPU's kernels in f64, and cuDNN must have computed
// those that it is to compute. Bugs it must catch: a wrong uid, stride, scale or bound of a mask;
// sinks that are not added.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/cuda/attention/cudnn_plan_of.h"
#include "tests/kernels/attention/attention_forms.h"
#include "tests/kernels/attention/attention_views.h"
#include "tests/testing/cudnn_emulation/emulated_cudnn.h"

namespace trainyard::testing {
namespace {

// The columns [begin, begin + count) of a matrix.
template <typename T>
Array<T> Columns(const Array<T>& of, int64_t begin, int64_t count) {
  const int64_t row = of.shape.back();
  Array<T> columns{{of.shape[0], count}, {}};
  for (int64_t i = 0; i < of.shape[0]; ++i) {
    const auto at = of.v.begin() + i * row + begin;
    columns.v.insert(columns.v.end(), at, at + count);
  }
  return columns;
}

// Queries, keys and values side by side, as one projection of a model computes them.
Array<bf16> Packed(const Tensors<bf16>& in) {
  const int64_t q = in.q.shape.back(), kv = in.kv.shape.back();
  Array<bf16> packed{{in.q.shape[0], q + kv}, {}};
  for (int64_t i = 0; i < in.q.shape[0]; ++i) {
    const auto of_q = in.q.v.begin() + i * q, of_kv = in.kv.v.begin() + i * kv;
    packed.v.insert(packed.v.end(), of_q, of_q + q);
    packed.v.insert(packed.v.end(), of_kv, of_kv + kv);
  }
  return packed;
}

// What cuDNN computes, and what our kernels do.
struct Computed {
  int cudnn = 0;
  int ours = 0;
};

// Calls the kernel, and expects that cuDNN computes the call if it has a plan.
template <typename Args>
void CallAndCount(const Args& args, Computed& computed) {
  const int64_t planned = cuda::CudnnPlanOf(args) ? 1 : 0, before = cudnn_emulation::Executed();
  Call(args);
  EXPECT_EQ(cudnn_emulation::Executed() - before, planned);
  ++(planned == 1 ? computed.cudnn : computed.ours);
}

class CudnnAttention : public ::testing::TestWithParam<Form> {
 protected:
  const Form form = GetParam();
  const Tensors<bf16> in = Random(form).As<bf16>();
  const Outputs<double> want = Compute(form, in.As<double>(), Kernels(2, &CpuBackend()));
};

TEST_P(CudnnAttention, AgreesWithTheCpu) {
  const AttentionDims dims = form.dims();
  const Array<bf16> qkv = Packed(in);
  Array<bf16> dqkv = Poison<bf16>(qkv.shape);
  auto got = Poisoned(form, in);
  Computed computed;
  AttentionForwardArgs forward = PackedForward(qkv, dims, got.out, got.lse);
  AttentionBackwardArgs backward =
      PackedBackward(qkv, dims, {.out = got.out, .lse = got.lse}, in.dout, dqkv);
  if (form.sinks) forward.sinks = backward.sinks = in.sinks, backward.dsinks = got.dsinks;
  CallAndCount(forward, computed);
  for (const bool deterministic : {true, false}) {
    backward.deterministic = deterministic;
    CallAndCount(backward, computed);
    got.dq = Columns(dqkv, 0, dims.query_columns());
    got.dkv = Columns(dqkv, dims.query_columns(), dims.key_columns() + dims.value_columns());
    ExpectAgrees(form, got, want);
  }
  EXPECT_EQ(computed.cudnn, 3);
}

// Two sequences each, and more heads than one. Scales are not those that a width suggests.
constexpr AttentionMask kCausal = {};
INSTANTIATE_TEST_SUITE_P(
    Forms, CudnnAttention,
    ::testing::Values(Form{"causal", 2, 128, 3, 3, 64, 64, kCausal, 0, false, 0, 0.11, 0, 0},
                      Form{"full", 2, 128, 2, 2, 64, 64, kFull, 0, false, 0, 0.13, 0, 0},
                      Form{"window", 2, 128, 2, 2, 64, 64, Window(50), 0, false, 0, 0.12, 0, 0},
                      Form{"pairs", 2, 128, 2, 2, 64, 64, Window(2), 0, false, 0, 0.12, 0, 0},
                      Form{"grouped", 2, 128, 6, 2, 64, 64, kCausal, 0, false, 0, 0.14, 0, 0},
                      Form{"latent", 2, 128, 2, 2, 192, 128, kCausal, 0, false, 0, 0.07, 0, 0},
                      Form{"sinks", 2, 128, 4, 2, 64, 64, kCausal, 0, true, 0, 0.11, 0, 0},
                      Form{"window_sinks", 2, 128, 4, 1, 72, 64, Window(30), 0, true, 0, 0.11, 0,
                           0},
                      Form{"padded", 2, 201, 4, 2, 64, 64, Window(90), 0, true, 0, 0.11, 0, 0}),
    [](const auto& info) { return info.param.name; });

// Parts as context ranks have them: of equal chunks, halves of the keys, and halves of the queries.
struct PartsCase {
  Form form;
  std::vector<FormPart> parts;
  int cudnn;  // Calls that cuDNN computes, of both passes.
  int ours;
};
void PrintTo(const PartsCase& of, std::ostream* out) { *out << of.form.name; }

PartsCase InChunks(const Form& form, int64_t chunks, int cudnn) {
  const std::vector<FormPart> parts = Chunks(form, chunks);
  return {form, parts, cudnn, 2 * int(parts.size()) - cudnn};
}
PartsCase InHalves(const Form& form) {
  const int64_t half = form.sequence / 2, quarter = half / 2;
  return {form,
          {PartOf(form, 0, half, 0, half), PartOf(form, half, half, half, half),
           PartOf(form, half, half, 0, quarter), PartOf(form, half, quarter, quarter, quarter),
           PartOf(form, half + quarter, quarter, quarter, quarter)},
          10,
          0};
}
PartsCase InHalvesOfQueries(const Form& form) {
  const int64_t half = form.sequence / 2, quarter = half / 2;
  return {form,
          {PartOf(form, 0, half, 0, half), PartOf(form, half, half, half, half),
           PartOf(form, half, quarter, 0, half), PartOf(form, half + quarter, quarter, 0, half)},
          8,
          0};
}

class CudnnAttentionParts : public ::testing::TestWithParam<PartsCase> {};

TEST_P(CudnnAttentionParts, AgreeWithTheCpu) {
  const auto& [form, parts, cudnn, ours] = GetParam();
  const Tensors<bf16> in = Random(form).As<bf16>();
  Computed computed;
  const auto got = Parts(form, in, parts, [&](const auto& args) { CallAndCount(args, computed); });
  ExpectAgrees(form, got, Compute(form, in.As<double>(), Kernels(2, &CpuBackend())), DType::kBF16);
  EXPECT_EQ(computed.cudnn, cudnn);
  EXPECT_EQ(computed.ours, ours);
}

// Of chunks, those that come later are left to our kernels, which see nothing of them; so are those
// at the beginning of a window.
INSTANTIATE_TEST_SUITE_P(
    Forms, CudnnAttentionParts,
    ::testing::Values(
        InChunks({"causal", 2, 256, 3, 3, 64, 64, kCausal, 0, false, 0, 0.11, 0, 64}, 2, 6),
        InChunks({"full", 2, 256, 2, 1, 64, 64, kFull, 0, false, 0, 0.13, 0, 8}, 2, 8),
        InChunks({"window", 2, 256, 2, 1, 64, 64, Window(100), 0, false, 0, 0.12, 0, 8}, 2, 4),
        InChunks({"latent", 1, 256, 2, 2, 192, 128, kCausal, 0, false, 0, 0.07, 0, 16}, 2, 6),
        InHalves({"halves_of_keys", 2, 512, 4, 2, 64, 64, kCausal, 0, false, 0, 0.11, 0, 8}),
        InHalvesOfQueries({"halves_of_queries", 1, 512, 2, 1, 64, 64, kCausal, 0, true, 0, 0.11, 0,
                           8})),
    [](const auto& info) { return info.param.form.name; });

}  // namespace
}  // namespace trainyard::testing
