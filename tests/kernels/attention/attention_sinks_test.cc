// Proves kernels/cuda/attention/attention_sinks.h. Our own kernel, called without sinks, stands for
// a library's kernel. With the sinks added, its results must be those of our kernel called with
// sinks.

#include "kernels/cuda/attention/attention_sinks.h"

#include <gtest/gtest.h>

#include "kernels/cuda/attention/attention_core.h"
#include "tests/kernels/call.h"
#include "tests/testing/array.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing {
namespace {

constexpr int64_t kBatch = 2, kSequence = 37, kHeads = 4, kKeyHeads = 2, kHeadDim = 16;

template <typename T>
struct Results {
  Array<T> out, dq, dkv;
  Array<Accumulate<T>> lse, dsinks;
};

template <typename T>
class Problem {
 public:
  explicit Problem(const AttentionMask& mask)
      : dims_{kSequence, kHeads, kKeyHeads, kHeadDim, kHeadDim, 0.25, 0, mask} {}

  // With `added`, sinks are left out of attention, and added to its results.
  Results<T> Compute(bool added) {
    Exec exec = TestedBackend().NewExec(1);
    Results<T> r{Poison<T>(q_.shape), Poison<T>(q_.shape), Poison<T>(kv_.shape),
                 Poison<Accumulate<T>>({kBatch, kHeads, kSequence}),
                 Normal<Accumulate<T>>({kHeads}, 5)};
    RunKernel<AttentionForwardArgs>(exec, Forward(r), [&](const AttentionForwardArgs& args) {
      auto core = CoreOf<T>(args);
      if (added) core.sinks = nullptr;
      cuda::Run(exec, core);
      if (added) cuda::AddSinks(exec, CoreOf<T>(args));
    });
    RunKernel<AttentionBackwardArgs>(exec, Backward(r), [&](const AttentionBackwardArgs& args) {
      auto core = CoreOf<T>(args);
      if (added) core.sinks = nullptr;
      cuda::Run(exec, core);
      if (added) cuda::SinkGradient(exec, CoreOf<T>(args));
    });
    return r;
  }

 private:
  template <typename Args>
  Args Inputs() const {
    Args args = {};
    args.q = {ConstTensor(q_), 0, dims_.query_columns()};
    args.k = {ConstTensor(kv_), 0, dims_.key_columns()};
    args.v = {ConstTensor(kv_), dims_.key_columns(), dims_.value_columns()};
    args.dims = dims_;
    args.sinks = sinks_;
    return args;
  }
  AttentionForwardArgs Forward(Results<T>& r) const {
    auto args = Inputs<AttentionForwardArgs>();
    args.out = r.out, args.lse = r.lse;
    return args;
  }
  AttentionBackwardArgs Backward(Results<T>& r) const {
    auto args = Inputs<AttentionBackwardArgs>();
    args.out = r.out, args.lse = r.lse, args.dout = dout_;
    args.dq = {Tensor(r.dq), 0, dims_.query_columns()};
    args.dk = {Tensor(r.dkv), 0, dims_.key_columns()};
    args.dv = {Tensor(r.dkv), dims_.key_columns(), dims_.value_columns()};
    args.dsinks = r.dsinks;
    args.write_dsinks = Write::kAdd;
    return args;
  }

  const AttentionDims dims_;
  const Array<T> q_ = Normal<T>({kBatch * kSequence, kHeads* kHeadDim}, 1);
  const Array<T> kv_ = Normal<T>({kBatch * kSequence, 2 * kKeyHeads* kHeadDim}, 2);
  const Array<T> sinks_ = Normal<T>({kHeads}, 3);
  const Array<T> dout_ = Normal<T>({kBatch * kSequence, kHeads* kHeadDim}, 4);
};

template <typename T>
void ExpectSame(const AttentionMask& mask, DType dtype) {
  Problem<T> problem(mask);
  const Results<T> want = problem.Compute(false), got = problem.Compute(true);
  const double tolerance = Tolerance(dtype, kSequence + kHeadDim);
  const auto expect = [&](const char* name, const auto& a, const auto& b) {
    SCOPED_TRACE(name);
    ExpectClose(Converted<double>(a).v, Converted<double>(b).v, tolerance);
  };
  expect("out", got.out, want.out);
  expect("lse", got.lse, want.lse);
  expect("dq", got.dq, want.dq);
  expect("dkv", got.dkv, want.dkv);
  expect("dsinks", got.dsinks, want.dsinks);
}

TEST(AttentionSinks, AddedToResultsWithoutThemAreTheResultsWithThem) {
  for (const AttentionMask& mask :
       {AttentionMask{}, AttentionMask{.window = 9}, AttentionMask{.causal = false}}) {
    SCOPED_TRACE(::testing::Message() << "causal " << mask.causal << ", window " << mask.window);
    ExpectSame<float>(mask, DType::kF32);
    ExpectSame<bf16>(mask, DType::kBF16);
  }
}

// A sink far above and far below all scores: no overflow, and the weight of 1 or 0 that it has.
TEST(AttentionSinks, OfAnySizeStayFinite) {
  for (const float sink : {-1e30f, 1e30f}) {
    Exec exec = TestedBackend().NewExec(1);
    Array<float> out = Normal<float>({1, 4}, 1), lse{{1, 1, 1}, {2.f}};
    const Array<float> q = out, sinks{{1}, {sink}};
    const auto before = out.v;
    AttentionForwardArgs args{.q = {ConstTensor(q), 0, 4},
                              .k = {ConstTensor(q), 0, 4},
                              .v = {ConstTensor(q), 0, 4},
                              .dims = {1, 1, 1, 4, 4, 0.5},
                              .out = out,
                              .lse = lse,
                              .sinks = sinks};
    RunKernel<AttentionForwardArgs>(exec, args, [&](const AttentionForwardArgs& on_device) {
      cuda::AddSinks(exec, CoreOf<float>(on_device));
    });
    EXPECT_EQ(lse.v[0], sink < 0 ? 2.f : sink);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(out.v[i], sink < 0 ? before[i] : 0.f);
  }
}

}  // namespace
}  // namespace trainyard::testing
