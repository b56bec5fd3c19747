// Proves kernels/experts/router.h on the CPU: choice and weights against a plain sort in f64, the
// gradient against numeric differentiation, the lower precisions against f64, ties and groups by
// hand.

#include "kernels/experts/router.h"

#include <numeric>
#include <set>

#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::router {

struct Gate {
  int64_t t, e;
  RouterOptions options;
  bool biased = false;
};

template <typename A, typename T = A>
struct Outputs {
  Array<int32_t> experts;
  Array<A> weights;
  Array<T> dlogits;
};

// `by_expert` [T, E]: the gradient of the weight that a token gives an expert, if it does.
template <typename A, typename T = A>
Outputs<A, T> Compute(const Array<double>& logits64, const Array<double>& bias64,
                      const RouterOptions& options, const Array<double>& by_expert,
                      int threads = 2) {
  const auto logits = Converted<A>(logits64);
  const auto bias = Converted<A>(bias64);
  const int64_t t = logits.shape[0], e = logits.shape[1], k = options.top_k;
  Outputs<A, T> out{Zeros<int32_t>({t, k}), Poison<A>({t, k}), Poison<T>(logits.shape)};
  RouterForwardArgs forward{
      .logits = logits, .options = options, .experts = out.experts, .weights = out.weights};
  if (!bias.v.empty()) forward.bias = bias;
  Call(forward, threads);
  auto dweights = Zeros<A>({t, k});
  for (int64_t i = 0; i < t * k; ++i) {
    dweights.v[size_t(i)] = A(by_expert.v[size_t(i / k * e + out.experts.v[size_t(i)])]);
  }
  Call(RouterBackwardArgs{.logits = logits,
                          .experts = out.experts,
                          .dweights = dweights,
                          .options = options,
                          .dlogits = out.dlogits},
       threads);
  return out;
}

// With these seeds no step of numeric differentiation, and no rounding, changes a choice.
class RouterTest : public ::testing::TestWithParam<Gate> {
 protected:
  const RouterOptions& options() const { return GetParam().options; }
  Array<double> logits = RoundedTo<bf16>(Normal<double>({GetParam().t, GetParam().e}, 11));
  Array<double> bias = GetParam().biased ? RoundedTo<bf16>(Normal<double>({GetParam().e}, 2))
                                         : Array<double>{{0}, {}};
  Array<double> by_expert = RoundedTo<float>(Normal<double>({GetParam().t, GetParam().e}, 3));
};

double Score(const RouterOptions& options, const double* logits, int64_t experts, int64_t e) {
  if (options.scoring == RouterScoring::kSigmoid) return 1 / (1 + std::exp(-logits[e]));
  double sum = 0;
  for (int64_t i = 0; i < experts; ++i) sum += std::exp(logits[i]);
  return std::exp(logits[e]) / sum;
}

// Indices of `value`, largest first.
std::vector<int> Sorted(const std::vector<double>& value) {
  std::vector<int> order(value.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return value[size_t(a)] > value[size_t(b)]; });
  return order;
}

TEST_P(RouterTest, ChoosesAndWeighsAsAPlainSortDoes) {
  const auto [t, e, options, biased] = GetParam();
  const auto got = Compute<double>(logits, bias, options, by_expert);
  for (int64_t token = 0; token < t; ++token) {
    std::vector<double> score, value;
    for (int64_t i = 0; i < e; ++i) {
      score.push_back(Score(options, logits.v.data() + token * e, e, i));
      value.push_back(score.back() + (biased ? bias.v[size_t(i)] : 0));
    }
    const int64_t size = e / options.groups;
    std::vector<double> group_value;
    for (int64_t g = 0; g < options.groups; ++g) {
      std::vector<double> group(value.begin() + g * size, value.begin() + (g + 1) * size);
      std::sort(group.rbegin(), group.rend());
      group_value.push_back(group[0] + (size > 1 ? group[1] : 0));
    }
    const auto groups = Sorted(group_value);
    const std::set<int> best(groups.begin(), groups.begin() + options.top_groups);
    std::vector<int> want;
    for (const int i : Sorted(value)) {
      if (best.contains(int(i / size)) && want.size() < size_t(options.top_k)) want.push_back(i);
    }
    double sum = 0;
    for (const int i : want) sum += score[size_t(i)];
    for (int64_t j = 0; j < options.top_k; ++j) {
      const size_t slot = size_t(token * options.top_k + j);
      EXPECT_EQ(got.experts.v[slot], want[size_t(j)]) << token << ' ' << j;
      const double s = score[size_t(want[size_t(j)])];
      EXPECT_NEAR(got.weights.v[slot], options.scale * (options.normalize ? s / sum : s), 1e-12);
    }
  }
}

TEST_P(RouterTest, BackwardMatchesNumericGradient) {
  const auto got = Compute<double>(logits, bias, options(), by_expert);
  const auto want = NumericGrad(logits.v, [&] {
    const auto out = Compute<double>(logits, bias, options(), by_expert);
    EXPECT_EQ(out.experts.v, got.experts.v);
    double loss = 0;
    for (size_t i = 0; i < out.weights.v.size(); ++i) {
      const size_t token = i / size_t(options().top_k);
      const size_t at = token * size_t(GetParam().e) + size_t(out.experts.v[i]);
      loss += out.weights.v[i] * by_expert.v[at];
    }
    return loss;
  });
  ExpectClose(got.dlogits.v, want, 1e-8);
}

template <typename T>
void ExpectAgreesWithF64(const Gate& gate, const Array<double>& logits, const Array<double>& bias,
                         const Array<double>& by_expert) {
  const auto got = Compute<float, T>(logits, bias, gate.options, by_expert);
  const auto want = Compute<double>(logits, bias, gate.options, by_expert);
  EXPECT_EQ(got.experts.v, want.experts.v);
  ExpectClose(Converted<double>(got.weights).v, want.weights.v, Tolerance(DType::kF32, gate.e));
  ExpectClose(Converted<double>(got.dlogits).v, want.dlogits.v,
              Tolerance(DTypeOf<T>::value, gate.e));
}

TEST_P(RouterTest, LowerPrecisionsAgreeWithF64) {
  ExpectAgreesWithF64<float>(GetParam(), logits, bias, by_expert);
  ExpectAgreesWithF64<bf16>(GetParam(), logits, bias, by_expert);
}

// So many experts that one token's fill a GPU's shared memory, and more choices than a warp has
// lanes: against a plain sort, and the formulas of router.h.
TEST(Router, ManyChoicesOfManyExperts) {
  const Gate gate = {3, 2'500, {.top_k = 40, .normalize = true}};
  const auto logits = RoundedTo<bf16>(Normal<double>({gate.t, gate.e}, 11));
  const auto by_expert = RoundedTo<float>(Normal<double>({gate.t, gate.e}, 3));
  ExpectAgreesWithF64<float>(gate, logits, {{0}, {}}, by_expert);
  const auto got = Compute<double>(logits, {{0}, {}}, gate.options, by_expert);
  auto want = Zeros<double>(logits.shape);
  for (int64_t t = 0; t < gate.t; ++t) {
    const double *logit = logits.v.data() + t * gate.e, *d = by_expert.v.data() + t * gate.e;
    const auto chosen = Sorted({logit, logit + gate.e});
    double n = 0, mean = 0, along = 0;
    for (size_t j = 0; j < 40; ++j) {
      EXPECT_EQ(got.experts.v[size_t(t) * 40 + j], chosen[j]) << t << ' ' << j;
      const double s = Score(gate.options, logit, gate.e, chosen[j]);
      n += s, mean += d[chosen[j]] * s;
    }
    double* out = want.v.data() + t * gate.e;
    for (size_t j = 0; j < 40; ++j) {
      out[chosen[j]] = (d[chosen[j]] - mean / n) / n;
      along += out[chosen[j]] * Score(gate.options, logit, gate.e, chosen[j]);
    }
    for (int64_t e = 0; e < gate.e; ++e) {
      out[e] = Score(gate.options, logit, gate.e, e) * (out[e] - along);
    }
  }
  ExpectClose(got.dlogits.v, want.v, 1e-12);
}

// More than a GPU takes at once: the same few again and again.
TEST(Router, TokensDoNotDependOnEachOther) {
  constexpr int64_t kFew = 9, kMany = 9'000, kExperts = 4;
  const auto few = Normal<double>({kFew, kExperts}, 11);
  const auto few_by_expert = Normal<double>({kFew, kExperts}, 3);
  auto many = Zeros<double>({kMany, kExperts}), many_by_expert = many;
  for (size_t i = 0; i < many.v.size(); ++i) {
    many.v[i] = few.v[i % few.v.size()];
    many_by_expert.v[i] = few_by_expert.v[i % few.v.size()];
  }
  const RouterOptions options = {.top_k = 2, .normalize = true};
  const auto want = Compute<float>(few, {{0}, {}}, options, few_by_expert);
  const auto got = Compute<float>(many, {{0}, {}}, options, many_by_expert);
  for (size_t i = 0; i < got.experts.v.size(); ++i) {
    ASSERT_EQ(got.experts.v[i], want.experts.v[i % want.experts.v.size()]) << i;
    ASSERT_EQ(got.weights.v[i], want.weights.v[i % want.weights.v.size()]) << i;
  }
  for (size_t i = 0; i < many.v.size(); ++i) {
    ASSERT_EQ(got.dlogits.v[i], want.dlogits.v[i % want.dlogits.v.size()]) << i;
  }
}

constexpr RouterScoring kSigmoid = RouterScoring::kSigmoid;
INSTANTIATE_TEST_SUITE_P(
    Gates, RouterTest,
    ::testing::Values(
        Gate{1, 1, {}}, Gate{3, 4, {.top_k = 2}}, Gate{5, 6, {.top_k = 6, .normalize = true}},
        Gate{4, 9, {.top_k = 3, .normalize = true, .scale = 2.5}},
        Gate{4, 8, {.scoring = kSigmoid, .top_k = 2}},
        Gate{4, 8, {.scoring = kSigmoid, .top_k = 3, .normalize = true, .scale = 0.5}, true},
        Gate{5, 12, {.top_k = 3, .groups = 4, .top_groups = 2}},
        Gate{5, 12, {.top_k = 2, .groups = 12, .top_groups = 3, .normalize = true}},
        Gate{5,
             12,
             {.scoring = kSigmoid, .top_k = 4, .groups = 3, .top_groups = 2, .normalize = true},
             true}));

struct Choice {
  std::vector<int32_t> experts;
  std::vector<double> weights;
};

Choice Choose(const Array<double>& logits, const RouterOptions& options,
              const Array<double>& bias = {{0}, {}}) {
  const auto out = Compute<double>(logits, bias, options, Zeros<double>(logits.shape));
  return {out.experts.v, out.weights.v};
}

TEST(Router, OfEqualScoresTheLowerExpertComesFirst) {
  EXPECT_EQ(Choose(Zeros<double>({1, 7}), {.top_k = 3}).experts, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(Choose({{1, 5}, {0, 1, 0, 1, 1}}, {.top_k = 4}).experts,
            (std::vector<int32_t>{1, 3, 4, 0}));
  EXPECT_EQ(Choose(Zeros<double>({1, 6}), {.top_k = 3, .groups = 3, .top_groups = 2}).experts,
            (std::vector<int32_t>{0, 1, 2}));
}

// The best expert is in the group of the least sum of two, and so not chosen.
TEST(Router, TheTwoBestOfAGroupDecideOnIt) {
  const Array<double> logits = {{1, 6}, {3, -9, 2, 1, 2, 2}};
  const RouterOptions options = {.scoring = kSigmoid, .top_k = 2, .groups = 3, .top_groups = 2};
  EXPECT_EQ(Choose(logits, options).experts, (std::vector<int32_t>{2, 4}));
}

TEST(Router, BiasDecidesOnTheChoiceAndNotOnTheWeights) {
  const Array<double> logits = {{1, 3}, {1, 0, -1}}, bias = {{3}, {0, 0, 1}};
  const auto plain = Choose(logits, {.top_k = 3}), biased = Choose(logits, {.top_k = 2}, bias);
  EXPECT_EQ(biased.experts, (std::vector<int32_t>{2, 0}));
  EXPECT_EQ(biased.weights, (std::vector<double>{plain.weights[2], plain.weights[0]}));
}

TEST(Router, RoundRobinLoadsExpertsAlikeAndIsNotTrained) {
  const auto logits = Normal<double>({5, 4}, 1), by_expert = Normal<double>({5, 4}, 2);
  const RouterOptions options = {.top_k = 2, .scale = 3, .choice = RouterChoice::kRoundRobin};
  const auto got = Compute<float, bf16>(logits, {{0}, {}}, options, by_expert);
  EXPECT_EQ(got.experts.v, (std::vector<int32_t>{0, 1, 2, 3, 0, 1, 2, 3, 0, 1}));
  EXPECT_EQ(got.weights.v, std::vector<float>(10, 1.5f));
  EXPECT_EQ(Converted<float>(got.dlogits).v, std::vector<float>(20, 0));
}

TEST(Router, LogitsThatAreNotFiniteStillChooseDifferentExperts) {
  for (const double bad : {double(NAN), double(INFINITY), -double(INFINITY)}) {
    for (size_t at = 0; at < 6; ++at) {
      Array<double> logits = {{1, 6}, {1, 2, 3, 1, 2, 3}};
      logits.v[at] = bad;
      for (const int64_t groups : {1, 3}) {
        const auto got =
            Choose(logits, {.top_k = 3, .groups = groups, .top_groups = 1 + groups / 2});
        const std::set<int32_t> different(got.experts.begin(), got.experts.end());
        EXPECT_EQ(different.size(), 3u) << bad << " at " << at;
        EXPECT_GE(*different.begin(), 0);
        EXPECT_LT(*different.rbegin(), 6);
      }
    }
  }
}

// exp(90) overflows f32, and a sigmoid of -200 is 0: nothing may become NaN.
TEST(Router, ExtremeLogitsStayFinite) {
  for (const RouterScoring scoring : {RouterScoring::kSoftmax, kSigmoid}) {
    const Array<double> logits = {{2, 3}, {500, -500, 0, -200, -200, -200}};
    const auto got =
        Compute<float>(logits, {{0}, {}}, {.scoring = scoring, .top_k = 2, .normalize = true},
                       Normal<double>({2, 3}, 1));
    for (const float w : got.weights.v) EXPECT_TRUE(std::isfinite(w));
    for (const float d : got.dlogits.v) EXPECT_TRUE(std::isfinite(d));
  }
}

TEST(Router, GradientMayReplaceTheLogits) {
  const Array<double> dweights = {{2, 2}, {1, -2, 3, 0.5}};
  auto logits = Normal<double>({2, 5}, 1), want = Poison<double>({2, 5});
  auto experts = Zeros<int32_t>({2, 2});
  auto weights = Poison<double>({2, 2});
  const RouterOptions options = {.top_k = 2, .normalize = true};
  Call(RouterForwardArgs{
      .logits = logits, .options = options, .experts = experts, .weights = weights});
  RouterBackwardArgs args{.logits = logits,
                          .experts = experts,
                          .dweights = dweights,
                          .options = options,
                          .dlogits = want};
  Call(args);
  args.dlogits = logits;
  Call(args);
  EXPECT_EQ(logits.v, want.v);
}

TEST(Router, ThreadsDoNotChangeBits) {
  const auto logits = Normal<double>({300, 64}, 1), by_expert = Normal<double>({300, 64}, 2);
  const RouterOptions options = {.top_k = 8, .groups = 8, .top_groups = 4, .normalize = true};
  const auto one = Compute<float>(logits, {{0}, {}}, options, by_expert, 1);
  const auto three = Compute<float>(logits, {{0}, {}}, options, by_expert, 3);
  EXPECT_EQ(one.experts.v, three.experts.v);
  EXPECT_EQ(one.weights.v, three.weights.v);
  EXPECT_EQ(one.dlogits.v, three.dlogits.v);
}

TEST(RouterDeathTest, NamesTheOptionThatDoesNotFit) {
  const auto logits = Zeros<double>({2, 6});
  EXPECT_DEATH(Choose(logits, {.top_k = 7}), "router top_k: 7 of 6 experts");
  EXPECT_DEATH(Choose(logits, {.groups = 4}), "router groups: 4 do not divide 6 experts");
  EXPECT_DEATH(Choose(logits, {.top_k = 3, .groups = 3, .top_groups = 1}),
               "router top_groups: 1 of 3 groups of 2 experts, for 3");
}

TEST(RouterDeathTest, NamesTheArgumentOfWrongShape) {
  const auto logits = Zeros<double>({2, 6}), bias = Zeros<double>({5});
  auto experts = Zeros<int32_t>({2, 2});
  auto weights = Zeros<double>({2, 3});
  RouterForwardArgs args{
      .logits = logits, .options = {.top_k = 2}, .experts = experts, .weights = weights};
  EXPECT_DEATH(Call(args), "router weights: wanted f64 \\[2, 2\\], got f64 \\[2, 3\\]");
  args.bias = bias;
  EXPECT_DEATH(Call(args), "router bias: wanted f64 with 6 elements");
}

}  // namespace trainyard::testing::router
