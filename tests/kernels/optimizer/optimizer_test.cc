// Proves kernels/sums/sum_squares.h, sum_words.h, clip.h and adamw.h: the gradient norm and the
// update against their formulas written plainly in f64.

#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/optimizer/adamw.h"
#include "kernels/optimizer/clip.h"
#include "kernels/sums/sum_squares.h"
#include "kernels/sums/sum_words.h"
#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::optimizer {

template <typename T>
void ExpectSumOfSquares(int64_t n) {
  const auto x = Normal<T>({n}, 1);
  const auto x64 = Converted<double>(x);
  StepState state;
  state.grad_norm_squared = 3;
  Call(SumSquaresArgs{.x = x, .state = &state});
  EXPECT_NEAR(state.grad_norm_squared, 3 + Dot(x64, x64), 1e-12 * double(n));
}

TEST(SumSquares, AddsToTheState) {
  for (int64_t n : {1, 4096, 4097, 100003, 600007}) {
    ExpectSumOfSquares<double>(n);
    ExpectSumOfSquares<float>(n);
    ExpectSumOfSquares<bf16>(n);
  }
}

TEST(SumSquares, ThreadsDoNotChangeBits) {
  const auto x = Normal<float>({1000003}, 1);
  StepState one, three;
  Call(SumSquaresArgs{.x = x, .state = &one}, 1);
  Call(SumSquaresArgs{.x = x, .state = &three}, 3);
  EXPECT_EQ(one.grad_norm_squared, three.grad_norm_squared);
}

template <typename T>
void ExpectSumIsOfTheValuesAlone() {
  const int64_t n = 4101;
  const auto x = Normal<T>({n + 1}, 1);
  auto tail = Zeros<T>({n});
  std::copy(x.v.begin() + 1, x.v.end(), tail.v.begin());
  StepState there, here;
  Call(SumSquaresArgs{.x = {x.v.data() + 1, DTypeOf<T>::value, {n}}, .state = &there});
  Call(SumSquaresArgs{.x = tail, .state = &here});
  EXPECT_EQ(there.grad_norm_squared, here.grad_norm_squared);
}

TEST(SumSquares, AddressesDoNotChangeBits) {
  ExpectSumIsOfTheValuesAlone<double>();
  ExpectSumIsOfTheValuesAlone<float>();
  ExpectSumIsOfTheValuesAlone<bf16>();
}

// Squares of 1e30 overflow f32; the norm must not.
TEST(SumSquares, LargeElementsDoNotOverflow) {
  const auto x = Filled<float>({4}, 1e30f);
  StepState state;
  Call(SumSquaresArgs{.x = x, .state = &state});
  EXPECT_NEAR(state.grad_norm_squared, 4e60, 1e54);
}

TEST(Clip, ShrinksOnlyNormsAboveTheLimit) {
  StepState state{.clip_norm = 1};
  state.grad_norm_squared = 16;
  Call(ClipArgs{.state = &state});
  EXPECT_EQ(state.grad_norm, 4);
  EXPECT_DOUBLE_EQ(state.clip_factor, 1 / (4 + 1e-6));
  EXPECT_EQ(state.finite, 1);
  state.grad_norm_squared = 0.25;
  Call(ClipArgs{.state = &state});
  EXPECT_EQ(state.clip_factor, 1);
  state = {.clip_norm = 0};
  state.grad_norm_squared = 16;
  Call(ClipArgs{.state = &state});
  EXPECT_EQ(state.clip_factor, 1);
}

TEST(Clip, FlagsALossOrNormThatIsNotFinite) {
  for (const double bad : {double(NAN), double(INFINITY)}) {
    StepState loss{.clip_norm = 1}, norm{.clip_norm = 1};
    loss.loss = bad;
    norm.grad_norm_squared = bad;
    Call(ClipArgs{.state = &loss});
    Call(ClipArgs{.state = &norm});
    EXPECT_EQ(loss.finite, 0);
    EXPECT_EQ(norm.finite, 0);
  }
  StepState good;
  good.finite = 0;  // Of an earlier step.
  Call(ClipArgs{.state = &good});
  EXPECT_EQ(good.finite, 1);
}

template <typename A>
struct Weights {
  Array<A> master, m, v, grad;
  Array<bf16> compute;
  explicit Weights(int64_t n = 9001)
      : master(Normal<A>({n}, 1)),
        m(Normal<A>({n}, 2)),
        v(Normal<A>({n}, 3)),
        grad(Normal<A>({n}, 4)),
        compute(Poison<bf16>({n})) {
    for (A& x : v.v) x = x * x;
  }
  AdamWArgs Args(StepState& state) {
    return {.master = master,
            .m = m,
            .v = v,
            .grad = grad,
            .options = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1},
            .state = &state,
            .compute = compute};
  }
};

StepState ThirdStep() {
  StepState state{.step = 3, .learning_rate = 0.01};
  state.clip_factor = 0.5;
  return state;
}

// The formula of adamw.h in the order it is printed there.
void PlainStep(Weights<double>& w) {
  for (size_t i = 0; i < w.master.v.size(); ++i) {
    const double g = w.grad.v[i] * 0.5;
    w.m.v[i] = 0.9 * w.m.v[i] + (1 - 0.9) * g;
    w.v.v[i] = 0.95 * w.v.v[i] + (1 - 0.95) * g * g;
    const double m = w.m.v[i] / (1 - std::pow(0.9, 3)), v = w.v.v[i] / (1 - std::pow(0.95, 3));
    w.master.v[i] -= 0.01 * (0.1 * w.master.v[i] + m / (std::sqrt(v) + 1e-8));
  }
}

TEST(AdamW, MatchesTheFormula) {
  StepState state = ThirdStep();
  for (const int64_t n : {1, 9001, 600007}) {
    Weights<double> got(n), want(n);
    Call(got.Args(state));
    PlainStep(want);
    ExpectClose(got.master.v, want.master.v, 1e-14);
    ExpectClose(got.m.v, want.m.v, 1e-14);
    ExpectClose(got.v.v, want.v.v, 1e-14);
  }
}

// A rank's share of the parameters may begin anywhere.
TEST(AdamW, UpdatesAnyRangeAndNothingBesides) {
  StepState state = ThirdStep();
  Weights<float> got, want;
  Call(want.Args(state));
  const Weights<float> before;
  const int64_t n = int64_t(got.master.v.size()) - 2;
  const auto inner = [n](auto& a) {
    auto* data = a.v.data();
    return Tensor{{data + 1, DTypeOf<std::remove_pointer_t<decltype(data)>>::value, {n}}};
  };
  AdamWArgs args = got.Args(state);
  args.master = inner(got.master), args.m = inner(got.m), args.v = inner(got.v);
  args.grad = inner(got.grad), args.compute = inner(got.compute);
  Call(args);
  for (const size_t end : {size_t{0}, size_t(n + 1)}) {
    want.master.v[end] = before.master.v[end];
    want.m.v[end] = before.m.v[end];
    want.v.v[end] = before.v.v[end];
    EXPECT_EQ(got.compute.v[end].bits, before.compute.v[end].bits);
  }
  ExpectClose(got.master.v, want.master.v, Tolerance(DType::kF32, 1));
  ExpectClose(got.m.v, want.m.v, Tolerance(DType::kF32, 1));
  ExpectClose(got.v.v, want.v.v, Tolerance(DType::kF32, 1));
  EXPECT_EQ(got.master.v[0], before.master.v[0]);
  EXPECT_EQ(got.master.v.back(), before.master.v.back());
}

TEST(AdamW, F32AgreesWithF64AndWritesTheComputeCopy) {
  StepState state = ThirdStep();
  Weights<float> got;
  Weights<double> want;
  want.master = Converted<double>(got.master), want.grad = Converted<double>(got.grad);
  want.m = Converted<double>(got.m), want.v = Converted<double>(got.v);
  Call(got.Args(state));
  PlainStep(want);
  ExpectClose(Converted<double>(got.master).v, want.master.v, Tolerance(DType::kF32, 1));
  ExpectClose(Converted<double>(got.m).v, want.m.v, Tolerance(DType::kF32, 1));
  ExpectClose(Converted<double>(got.v).v, want.v.v, Tolerance(DType::kF32, 1));
  for (size_t i = 0; i < got.compute.v.size(); ++i) {
    ASSERT_EQ(got.compute.v[i].bits, bf16(got.master.v[i]).bits);
  }
}

template <typename A>
uint32_t SumOfWords(const std::vector<A>& values) {
  std::vector<uint32_t> words(values.size() * sizeof(A) / sizeof(uint32_t));
  std::memcpy(words.data(), values.data(), words.size() * sizeof(uint32_t));
  return std::accumulate(words.begin(), words.end(), uint32_t{0});
}
template <typename A>
WordSums SumsOf(const Weights<A>& w) {
  return {SumOfWords(w.master.v), SumOfWords(w.m.v), SumOfWords(w.v.v)};
}

template <typename A>
void ExpectSumsOfWhatWasReadAndWritten(int64_t n) {
  StepState state = ThirdStep();
  Weights<A> w(n);
  const WordSums before = SumsOf(w);
  Call(w.Args(state), 3);
  EXPECT_EQ(state.read, before);
  EXPECT_EQ(state.written, SumsOf(w));
  const WordSums after = state.written;
  Call(w.Args(state), 2);  // As another call of the same step does, it adds.
  EXPECT_EQ(state.read,
            (WordSums{before.master + after.master, before.m + after.m, before.v + after.v}));
}

TEST(AdamW, SumsTheWordsThatItReadsAndWrites) {
  for (const int64_t n : {1, 9001, 600007}) {
    ExpectSumsOfWhatWasReadAndWritten<float>(n);
    ExpectSumsOfWhatWasReadAndWritten<double>(n);
  }
}

template <typename T>
void ExpectSumOfWords(int64_t n) {
  const auto x = Normal<T>({n + 9}, 1);
  for (const int64_t begin : {0, 1, 4, 7, 9}) {
    const auto from = x.v.begin() + begin;
    uint32_t want = 7;
    std::for_each(from, from + n, [&](T value) { want += WordSum(value); });
    StepState state{.words = 7};
    Call(SumWordsArgs{.x = {&*from, DTypeOf<T>::value, {n}}, .state = &state}, 3);
    EXPECT_EQ(state.words, want) << n << " elements from " << begin;
  }
}

TEST(SumWords, AddsToTheStateAtEveryAlignment) {
  for (const int64_t n : {1, 2, 7, 8, 9, 4101, 70007}) {
    ExpectSumOfWords<double>(n);
    ExpectSumOfWords<float>(n);
    ExpectSumOfWords<bf16>(n);
  }
}

// Whichever bit of a number changes, its words no longer have the same sum.
TEST(SumWords, ABitThatChangesChangesTheSum) {
  for (int bit = 0; bit < 64; ++bit) {
    for (const double x : {0.0, 1.0, -3.5e-310, 1e300}) {
      uint64_t words = 0;
      std::memcpy(&words, &x, sizeof(x));
      words ^= uint64_t{1} << bit;
      double changed = 0;
      std::memcpy(&changed, &words, sizeof(changed));
      EXPECT_NE(WordSum(x), WordSum(changed)) << x << ", bit " << bit;
    }
  }
}

TEST(AdamW, ChangesNothingAfterAStepThatIsNotFinite) {
  StepState state = ThirdStep();
  state.finite = 0;
  Weights<float> w;
  const Weights<float> before;
  w.grad = Poison<float>({9001});
  Call(w.Args(state));
  EXPECT_EQ(w.master.v, before.master.v);
  EXPECT_EQ(w.m.v, before.m.v);
  EXPECT_EQ(w.v.v, before.v.v);
  EXPECT_EQ(state.read, WordSums());
  EXPECT_EQ(state.written, WordSums());
}

TEST(AdamW, ThreadsDoNotChangeBits) {
  StepState state = ThirdStep();
  Weights<float> one(50001), three(50001);
  Call(one.Args(state), 1);
  Call(three.Args(state), 3);
  EXPECT_EQ(one.master.v, three.master.v);
}

TEST(AdamWDeathTest, NamesTheArgumentThatIsWrong) {
  StepState state = ThirdStep();
  Weights<float> w;
  w.grad = Zeros<float>({9000});
  EXPECT_DEATH(Call(w.Args(state)), "adamw grad: wanted f32 with 9001 elements");
  w.grad = Zeros<float>({9001});
  auto args = w.Args(state);
  args.options.beta2 = 1;
  EXPECT_DEATH(Call(args), "adamw beta2: 1");
}

}  // namespace trainyard::testing::optimizer
