// Proves kernels/cuda/attention/attention_by_parts.h. Our own kernel, which overwrites, stands for
// a library's kernel. Merged, its results must be those of our kernel for parts, and rows outside
// of a part must stay as they are.

#include "kernels/cuda/attention/attention_by_parts.h"

#include <gtest/gtest.h>

#include "kernels/attention/cudnn_attention_plan.h"
#include "kernels/cuda/attention/attention_core.h"
#include "tests/kernels/call.h"
#include "tests/testing/array.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing {
namespace {

constexpr int64_t kBatch = 2, kRows = 20;
constexpr AttentionMask kFull = {.causal = false};

struct Case {
  const char* name;
  AttentionPart part;
  AttentionMask mask = {};  // Of the part for a library.
  Write write = Write::kAdd;
  bool sinks = false;
};

template <typename T>
struct Results {
  Array<Accumulate<T>> out, lse, dq, dkv, dsinks;
};

template <typename T>
class Problem {
 public:
  using A = Accumulate<T>;
  explicit Problem(const Case& of) : case_(of) {}

  // With `merged`, by a kernel that overwrites.
  Results<T> Compute(bool merged) const {
    Exec exec = TestedBackend().NewExec(1);
    Results<T> r{Normal<A>({kTokens, dims_.out_columns()}, 6), Normal<A>({kBatch, 4, kRows}, 7),
                 Normal<A>(q_.shape, 8), Normal<A>(kv_.shape, 9), Normal<A>({4}, 10)};
    RunKernel<AttentionPartForwardArgs>(
        exec, Forward(r), [&](const auto& args) { Compute(exec, CoreOf<T>(args), merged); });
    RunKernel<AttentionPartBackwardArgs>(
        exec, Backward(r), [&](const auto& args) { Compute(exec, CoreOf<T>(args), merged); });
    return r;
  }

 private:
  template <typename Core>
  static bool Plain(Exec& exec, const Core& core) {
    EXPECT_EQ(core.sinks, nullptr);
    cuda::Run(exec, core);
    return true;
  }
  void Compute(Exec& exec, const AttentionForwardCore<T, A>& core, bool merged) const {
    if (!merged) return cuda::Run(exec, core);
    EXPECT_TRUE(
        cuda::AttentionByParts<T>(exec, core, case_.mask, Plain<AttentionForwardCore<T, T>>));
  }
  void Compute(Exec& exec, const AttentionBackwardCore<T, A>& core, bool merged) const {
    if (!merged) return cuda::Run(exec, core);
    EXPECT_TRUE(
        cuda::AttentionByParts<T>(exec, core, case_.mask, Plain<AttentionBackwardCore<T, T>>));
  }

  template <typename Args>
  Args Inputs() const {
    Args args = {};
    args.q = {ConstTensor(q_), 0, dims_.query_columns()};
    args.k = {ConstTensor(kv_), 0, dims_.key_columns()};
    args.v = {ConstTensor(kv_), dims_.key_columns(), dims_.value_columns()};
    args.dims = dims_;
    args.part = case_.part;
    if (case_.sinks) args.sinks = sinks_;
    return args;
  }
  AttentionPartForwardArgs Forward(Results<T>& r) const {
    auto args = Inputs<AttentionPartForwardArgs>();
    args.out = r.out;
    args.lse = r.lse;
    args.write = case_.write;
    return args;
  }
  AttentionPartBackwardArgs Backward(Results<T>& r) const {
    auto args = Inputs<AttentionPartBackwardArgs>();
    args.out = out_;
    args.lse = lse_;
    args.dout = dout_;
    args.dq = {r.dq, 0, dims_.query_columns()};
    args.dk = {r.dkv, 0, dims_.key_columns()};
    args.dv = {r.dkv, dims_.key_columns(), dims_.value_columns()};
    args.write_dq = args.write_dkv = args.write_dsinks = case_.write;
    if (case_.sinks) args.dsinks = r.dsinks;
    return args;
  }

  static constexpr int64_t kTokens = kBatch * kRows;
  const Case case_;
  const AttentionDims dims_ = {kRows, 4, 2, 16, 8, 0.25};
  Array<T> q_ = Normal<T>({kTokens, 64}, 1);
  Array<T> kv_ = Normal<T>({kTokens, 48}, 2);
  Array<T> sinks_ = Normal<T>({4}, 3);
  Array<T> out_ = Normal<T>({kTokens, 32}, 4);
  Array<T> dout_ = Normal<T>({kTokens, 32}, 5);
  Array<A> lse_ = Filled<A>({kBatch, 4, kRows}, 2);
};

class AttentionByParts : public ::testing::TestWithParam<Case> {};

template <typename T>
void ExpectMerged(const Case& of) {
  const Problem<T> problem(of);
  const Results<T> want = problem.Compute(false), got = problem.Compute(true);
  const double tolerance = Tolerance(DTypeOf<T>::value, kRows);
  ExpectClose(got.out.v, want.out.v, tolerance);
  ExpectClose(got.lse.v, want.lse.v, tolerance);
  ExpectClose(got.dq.v, want.dq.v, tolerance);
  ExpectClose(got.dkv.v, want.dkv.v, tolerance);
  ExpectClose(got.dsinks.v, want.dsinks.v, tolerance);
}

TEST_P(AttentionByParts, AreMerged) {
  ExpectMerged<float>(GetParam());
  ExpectMerged<bf16>(GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    Parts, AttentionByParts,
    ::testing::Values(
        Case{.name = "own", .part = {0, kRows, 0, kRows, {}}, .write = Write::kOverwrite},
        Case{.name = "own_sinks",
             .part = {0, kRows, 0, kRows, {}},
             .write = Write::kOverwrite,
             .sinks = true},
        Case{.name = "earlier", .part = {0, kRows, 0, 10, kFull}, .mask = kFull},
        Case{.name = "later", .part = {10, 10, 0, kRows, kFull}, .mask = kFull},
        Case{.name = "window_sinks",
             .part = {10, 10, 10, 10, {.window = 4}, 30, 30},
             .mask = {.window = 4},
             .sinks = true},
        Case{.name = "all_seen", .part = {10, 10, 0, 10, {.window = 64}, 50, 20}, .mask = kFull}),
    [](const auto& info) { return std::string(info.param.name); });

// A refusal leaves everything as it was.
TEST(AttentionByPartsTest, DoesNothingIfRefused) {
  Exec exec = TestedBackend().NewExec(1);
  AttentionForwardCore<float, float> core = {};
  core.sequences = 1;
  core.dims = {.sequence = 8, .heads = 1, .kv_heads = 1, .head_dim = 8, .value_dim = 8, .scale = 1};
  const cuda::ForwardPart<float> refuse = [](Exec&, const auto&) { return false; };
  EXPECT_FALSE(cuda::AttentionByParts<float>(exec, core, {}, refuse));
}

AttentionDims Dims(int64_t window = 0) {
  return {.sequence = 1024,
          .heads = 4,
          .kv_heads = 4,
          .head_dim = 128,
          .value_dim = 128,
          .scale = 1,
          .mask = {.window = window}};
}
std::optional<AttentionMask> MaskOf(const AttentionPart& part) {
  return CudnnPartMask(DType::kBF16, Dims(), part);
}

TEST(CudnnPartMaskTest, CountsFromTheFirstRows) {
  EXPECT_EQ(MaskOf({0, 512, 0, 512, {}}), AttentionMask());
  EXPECT_EQ(MaskOf({0, 512, 0, 256, kFull}), kFull);
  // The first query sees up to the last key; or not.
  EXPECT_EQ(MaskOf({0, 256, 0, 256, {}, 255, 0}), kFull);
  EXPECT_EQ(MaskOf({0, 256, 0, 256, {}, 254, 0}), std::nullopt);
  // The last query still sees the first key; or not.
  EXPECT_EQ(MaskOf({0, 256, 0, 256, {.window = 512}, 256, 0}), kFull);
  EXPECT_EQ(MaskOf({0, 256, 0, 256, {.window = 511}, 256, 0}), std::nullopt);
  const AttentionMask window = {.window = 100};
  EXPECT_EQ(MaskOf({0, 256, 256, 256, window, 768, 768}), window);
  // Whole tiles alone, and widths that cuDNN takes.
  EXPECT_EQ(MaskOf({0, 200, 0, 256, kFull}), std::nullopt);
  EXPECT_EQ(MaskOf({0, 256, 0, 200, kFull}), std::nullopt);
  AttentionDims narrow = Dims();
  narrow.head_dim = 32;
  EXPECT_EQ(CudnnPartMask(DType::kBF16, narrow, {0, 256, 0, 256, {}}), std::nullopt);
  EXPECT_EQ(CudnnPartMask(DType::kF32, Dims(), {0, 256, 0, 256, {}}), std::nullopt);
}

}  // namespace
}  // namespace trainyard::testing
