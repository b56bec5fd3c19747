// Proves kernels/optimizer/lion.h: the update against the formula of the paper, written plainly in
// f64.

#include "kernels/optimizer/lion.h"

#include <numeric>

#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::lion {

template <typename A>
struct LionWeights {
  Array<A> master, m, grad;
  Array<bf16> compute;
  explicit LionWeights(int64_t n = 9001)
      : master(Normal<A>({n}, 1)),
        m(Normal<A>({n}, 2)),
        grad(Normal<A>({n}, 3)),
        compute(Poison<bf16>({n})) {
    // Of an embedding that no token has used.
    m.v.front() = grad.v.front() = 0;
  }
  LionArgs Args(StepState& state) {
    return {.master = master,
            .m = m,
            .grad = grad,
            .options = {.beta1 = 0.9, .beta2 = 0.98, .weight_decay = 0.3},
            .state = &state,
            .compute = compute};
  }
};

StepState LionStep() {
  StepState state{.step = 3, .learning_rate = 0.01};
  state.clip_factor = 0.5;
  return state;
}

// Algorithm 2 of arXiv:2302.06675, line by line.
void PaperStep(LionWeights<double>& w) {
  const double eta = 0.01, lambda = 0.3, beta1 = 0.9, beta2 = 0.98;
  for (size_t i = 0; i < w.master.v.size(); ++i) {
    const double gradient = w.grad.v[i] * 0.5;
    const double c = beta1 * w.m.v[i] + (1 - beta1) * gradient;
    const double sign = c > 0 ? 1 : c < 0 ? -1 : 0;
    w.master.v[i] = w.master.v[i] - eta * (sign + lambda * w.master.v[i]);
    w.m.v[i] = beta2 * w.m.v[i] + (1 - beta2) * gradient;
  }
}

TEST(Lion, MatchesThePaper) {
  StepState state = LionStep();
  for (const int64_t n : {1, 9001, 600007}) {
    LionWeights<double> got(n), want(n);
    for (int step = 0; step < 3; ++step) {
      Call(got.Args(state));
      PaperStep(want);
    }
    ExpectClose(got.master.v, want.master.v, 1e-14);
    ExpectClose(got.m.v, want.m.v, 1e-14);
  }
}

// A rank's share of the parameters may begin anywhere.
TEST(Lion, UpdatesAnyRangeAndNothingBesides) {
  StepState state = LionStep();
  LionWeights<float> got, want;
  Call(want.Args(state));
  const LionWeights<float> before;
  const int64_t n = int64_t(got.master.v.size()) - 2;
  const auto inner = [n](auto& a) {
    auto* data = a.v.data();
    return Tensor{{data + 1, DTypeOf<std::remove_pointer_t<decltype(data)>>::value, {n}}};
  };
  LionArgs args = got.Args(state);
  args.master = inner(got.master), args.m = inner(got.m), args.grad = inner(got.grad);
  args.compute = inner(got.compute);
  Call(args);
  for (const size_t end : {size_t{0}, size_t(n + 1)}) {
    EXPECT_EQ(got.master.v[end], before.master.v[end]);
    EXPECT_EQ(got.m.v[end], before.m.v[end]);
    EXPECT_EQ(got.compute.v[end].bits, before.compute.v[end].bits);
    want.master.v[end] = before.master.v[end];
    want.m.v[end] = before.m.v[end];
  }
  ExpectClose(got.master.v, want.master.v, Tolerance(DType::kF32, 1));
  ExpectClose(got.m.v, want.m.v, Tolerance(DType::kF32, 1));
}

TEST(Lion, F32AgreesWithF64AndWritesTheComputeCopy) {
  StepState state = LionStep();
  LionWeights<float> got;
  LionWeights<double> want;
  want.master = Converted<double>(got.master), want.grad = Converted<double>(got.grad);
  want.m = Converted<double>(got.m);
  Call(got.Args(state));
  PaperStep(want);
  ExpectClose(Converted<double>(got.master).v, want.master.v, Tolerance(DType::kF32, 1));
  ExpectClose(Converted<double>(got.m).v, want.m.v, Tolerance(DType::kF32, 1));
  for (size_t i = 0; i < got.compute.v.size(); ++i) {
    ASSERT_EQ(got.compute.v[i].bits, bf16(got.master.v[i]).bits);
  }
}

template <typename A>
uint32_t WordsOf(const Array<A>& values) {
  return std::accumulate(values.v.begin(), values.v.end(), uint32_t{0},
                         [](uint32_t sum, A x) { return sum + WordSum(x); });
}

template <typename A>
void ExpectLionSums(int64_t n) {
  StepState state = LionStep();
  LionWeights<A> w(n);
  const WordSums before = {WordsOf(w.master), WordsOf(w.m), 0};
  Call(w.Args(state), 3);
  EXPECT_EQ(state.read, before);
  EXPECT_EQ(state.written, (WordSums{WordsOf(w.master), WordsOf(w.m), 0}));
}

TEST(Lion, SumsTheWordsThatItReadsAndWrites) {
  for (const int64_t n : {1, 9001, 600007}) {
    ExpectLionSums<float>(n);
    ExpectLionSums<double>(n);
  }
}

TEST(Lion, ChangesNothingAfterAStepThatIsNotFinite) {
  StepState state = LionStep();
  state.finite = 0;
  LionWeights<float> w;
  const LionWeights<float> before;
  w.grad = Poison<float>({9001});
  Call(w.Args(state));
  EXPECT_EQ(w.master.v, before.master.v);
  EXPECT_EQ(w.m.v, before.m.v);
  EXPECT_EQ(state.read, WordSums());
  EXPECT_EQ(state.written, WordSums());
}

TEST(Lion, ThreadsDoNotChangeBits) {
  StepState state = LionStep();
  LionWeights<float> one(50001), three(50001);
  Call(one.Args(state), 1);
  Call(three.Args(state), 3);
  EXPECT_EQ(one.master.v, three.master.v);
  EXPECT_EQ(one.m.v, three.m.v);
}

TEST(LionDeathTest, NamesTheArgumentThatIsWrong) {
  StepState state = LionStep();
  LionWeights<float> w;
  auto args = w.Args(state);
  args.options.beta1 = 1;
  EXPECT_DEATH(Call(args), "lion beta1: 1");
  w.m = Zeros<float>({9000});
  EXPECT_DEATH(Call(w.Args(state)), "lion m: wanted f32 with 9001 elements");
}

}  // namespace trainyard::testing::lion
