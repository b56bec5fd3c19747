// Proves kernels/products/grouped_matmul.h on the CPU: the three products of every group against a
// naive loop in f64, for every dtype, with groups without rows and rows of no group; that they are
// each other's gradients; what is left alone.

#include "kernels/products/grouped_matmul.h"

#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::grouped_matmul {

struct Case {
  int64_t k, n;
  std::vector<int32_t> offsets;
  int64_t bound;

  int64_t groups() const { return int64_t(offsets.size()) - 1; }
  int64_t longest() const {
    int64_t longest = 1;
    for (size_t g = 0; g + 1 < offsets.size(); ++g) {
      longest = std::max<int64_t>(longest, offsets[g + 1] - offsets[g]);
    }
    return longest;
  }
};

template <typename T>
struct Outputs {
  Array<T> y, dx;
  Array<Accumulate<T>> dweight;
};

// Outputs begin as 3; of several `passes`, all but the first add to them.
template <typename T>
Outputs<T> Compute(const Case& c, const Array<double>& x64, const Array<double>& w64,
                   const Array<double>& dy64, int passes = 1) {
  using A = Accumulate<T>;
  const auto x = Converted<T>(x64), weight = Converted<T>(w64), dy = Converted<T>(dy64);
  const Array<int32_t> offsets = {{c.groups() + 1}, c.offsets};
  Outputs<T> out{Filled<T>(dy.shape, T(3)), Filled<T>(x.shape, T(3)),
                 Filled<A>(weight.shape, A(3))};
  for (int pass = 0; pass < passes; ++pass) {
    const Write write = pass == 0 ? Write::kOverwrite : Write::kAdd;
    Call(GroupedMatMulForwardArgs{
        .x = x, .weight = weight, .offsets = offsets, .y = out.y, .write = write});
    Call(GroupedMatMulInputGradientArgs{
        .dy = dy, .weight = weight, .offsets = offsets, .dx = out.dx, .write = write});
    Call(GroupedMatMulWeightGradientArgs{
        .dy = dy, .x = x, .offsets = offsets, .dweight = out.dweight, .write = write});
  }
  return out;
}

Outputs<double> Naive(const Case& c, const Array<double>& x, const Array<double>& w,
                      const Array<double>& dy) {
  Outputs<double> out{Filled<double>(dy.shape, 3), Filled<double>(x.shape, 3),
                      Zeros<double>(w.shape)};
  for (int64_t g = 0; g < c.groups(); ++g) {
    for (int64_t r = c.offsets[size_t(g)]; r < c.offsets[size_t(g) + 1]; ++r) {
      std::fill_n(out.y.v.begin() + r * c.n, c.n, 0.0);
      std::fill_n(out.dx.v.begin() + r * c.k, c.k, 0.0);
      for (int64_t n = 0; n < c.n; ++n) {
        for (int64_t k = 0; k < c.k; ++k) {
          const size_t at = size_t((g * c.n + n) * c.k + k);
          out.y.v[size_t(r * c.n + n)] += x.v[size_t(r * c.k + k)] * w.v[at];
          out.dx.v[size_t(r * c.k + k)] += dy.v[size_t(r * c.n + n)] * w.v[at];
          out.dweight.v[at] += dy.v[size_t(r * c.n + n)] * x.v[size_t(r * c.k + k)];
        }
      }
    }
  }
  return out;
}

template <typename T>
void ExpectProducts(const Case& c) {
  SCOPED_TRACE(::testing::Message() << c.k << 'x' << c.n << ' ' << DTypeOf<T>::value);
  const auto x = RoundedTo<T>(Normal<double>({c.bound, c.k}, 1));
  const auto w = RoundedTo<T>(Normal<double>({c.groups(), c.n, c.k}, 2));
  const auto dy = RoundedTo<T>(Normal<double>({c.bound, c.n}, 3));
  auto want = Naive(c, x, w, dy);
  const auto got = Compute<T>(c, x, w, dy);
  const DType dtype = DTypeOf<T>::value, accumulate = AccumulateOfDType(dtype);
  ExpectClose(Converted<double>(got.y).v, want.y.v, Tolerance(dtype, c.k));
  ExpectClose(Converted<double>(got.dx).v, want.dx.v, Tolerance(dtype, c.n));
  ExpectClose(Converted<double>(got.dweight).v, want.dweight.v, Tolerance(accumulate, c.longest()));
  const auto is_of_group = [&](int64_t r) {
    return r >= c.offsets.front() && r < c.offsets.back();
  };
  const auto twice = Compute<T>(c, x, w, dy, 2);
  for (double& d : want.dweight.v) d *= 2;
  for (int64_t r = 0; r < c.bound; ++r) {
    if (!is_of_group(r)) continue;
    for (int64_t n = 0; n < c.n; ++n) want.y.v[size_t(r * c.n + n)] *= 2;
    for (int64_t k = 0; k < c.k; ++k) want.dx.v[size_t(r * c.k + k)] *= 2;
  }
  ExpectClose(Converted<double>(twice.y).v, want.y.v, Tolerance(dtype, c.k));
  ExpectClose(Converted<double>(twice.dx).v, want.dx.v, Tolerance(dtype, c.n));
  ExpectClose(Converted<double>(twice.dweight).v, want.dweight.v,
              Tolerance(accumulate, c.longest()));
  // Rows of no group are left alone, exactly.
  for (const int64_t r : {int64_t{0}, c.bound - 1}) {
    if (is_of_group(r)) continue;
    for (const auto& outputs : {got, twice}) {
      EXPECT_EQ(double(outputs.y.v[size_t(r * c.n)]), 3) << r;
      EXPECT_EQ(double(outputs.dx.v[size_t(r * c.k)]), 3) << r;
    }
  }
}

TEST(GroupedMatMul, EveryGroupAndDTypeMatchesANaiveLoop) {
  for (const Case& c :
       {Case{1, 1, {0, 1}, 1}, Case{5, 7, {0, 3, 3, 8}, 8}, Case{24, 16, {2, 2, 6, 40, 40, 41}, 50},
        Case{64, 33, {0, 70, 70}, 90}, Case{8, 8, {0, 0, 0}, 4},
        Case{40, 24, {0, 17, 29, 64, 80, 81, 96}, 96}, Case{130, 72, {0, 150, 150, 170}, 180},
        Case{136, 264, {1, 131, 150}, 160}}) {
    ExpectProducts<double>(c);
    ExpectProducts<float>(c);
    ExpectProducts<bf16>(c);
  }
}

// More tiles, and more groups, than a GPU takes at once.
TEST(GroupedMatMul, ThereMayBeManyGroups) {
  Case c = {2, 3, {}, 700};
  for (int32_t g = 0; g <= c.bound; ++g) c.offsets.push_back(g);
  ExpectProducts<float>(c);
}

TEST(GroupedMatMul, TheProductsAreEachOthersGradients) {
  const Case c = {3, 4, {1, 3, 3, 6}, 8};
  auto x = Normal<double>({c.bound, c.k}, 1), w = Normal<double>({c.groups(), c.n, c.k}, 2);
  const auto dy = Normal<double>({c.bound, c.n}, 3);
  const auto got = Compute<double>(c, x, w, dy);
  const auto loss = [&] { return Dot(Compute<double>(c, x, w, dy).y, dy); };
  auto want_dx = NumericGrad(x.v, loss);
  const auto want_dw = NumericGrad(w.v, loss);
  for (int64_t r = 0; r < c.bound; ++r) {  // Rows of no group have no gradient, and are left alone.
    if (r < 1 || r >= 6) std::fill_n(want_dx.begin() + r * c.k, c.k, 3.0);
  }
  ExpectClose(got.dx.v, want_dx, 1e-8);
  ExpectClose(got.dweight.v, want_dw, 1e-8);
}

// What the trainer does: bound once, offsets rewritten for every micro-batch. What one call
// prepared serves groups of other sizes.
template <typename T>
void ExpectOffsetsAreReadWhenTheKernelsRun() {
  using A = Accumulate<T>;
  constexpr int64_t kK = 3, kN = 2, kBound = 40;
  const auto x = Filled<T>({kBound, kK}, T(1)), dy = Filled<T>({kBound, kN}, T(2));
  Array<T> weight = {{2, kN, kK}, {}};
  for (const float w : {1, 10}) weight.v.insert(weight.v.end(), size_t(kN * kK), T(w));
  Array<int32_t> offsets = {{3}, {0, 0, 0}};
  auto y = Zeros<T>({kBound, kN}), dx = Zeros<T>({kBound, kK});
  auto dweight = Zeros<A>({2, kN, kK});
  const GroupedMatMulForwardArgs forward{.x = x, .weight = weight, .offsets = offsets, .y = y};
  const GroupedMatMulInputGradientArgs input{
      .dy = dy, .weight = weight, .offsets = offsets, .dx = dx};
  const GroupedMatMulWeightGradientArgs weights{
      .dy = dy, .x = x, .offsets = offsets, .dweight = dweight, .write = Write::kOverwrite};
  Exec exec = TestedBackend().NewExec(Threads(2));
  for (const auto& [first, second] : {std::pair{4, 2}, {1, 30}, {30, 1}, {4, 2}, {7, 0}}) {
    offsets.v = {0, first, first + second};
    Call(exec, forward);
    Call(exec, input);
    Call(exec, weights);
    for (int r = 0; r < first + second; ++r) {
      const float w = r < first ? 1 : 10;
      ASSERT_EQ(float(y.v[size_t(r * kN + kN - 1)]), w * kK) << first << ' ' << second << ' ' << r;
      ASSERT_EQ(float(dx.v[size_t(r * kK + kK - 1)]), w * 2 * kN) << first << ' ' << r;
    }
    ASSERT_EQ(float(dweight.v.front()), float(2 * first));
    ASSERT_EQ(float(dweight.v.back()), float(2 * second));
  }
}

TEST(GroupedMatMul, OffsetsAreReadWhenTheKernelsRun) {
  ExpectOffsetsAreReadWhenTheKernelsRun<double>();
  ExpectOffsetsAreReadWhenTheKernelsRun<float>();
  ExpectOffsetsAreReadWhenTheKernelsRun<bf16>();
}

TEST(GroupedMatMulDeathTest, NamesOffsetsThatDoNotFit) {
  const auto x = Zeros<float>({4, 2}), weight = Zeros<float>({2, 3, 2});
  auto y = Zeros<float>({4, 3});
  const auto run = [&](const std::vector<int32_t>& offset) {
    const Array<int32_t> offsets = {{3}, offset};
    Call(GroupedMatMulForwardArgs{.x = x, .weight = weight, .offsets = offsets, .y = y});
  };
  EXPECT_DEATH(run({0, 3, 2}), "grouped_matmul offsets: group 1 has rows 3 to 2 of 4");
  EXPECT_DEATH(run({0, 3, 5}), "group 1 has rows 3 to 5 of 4");
  EXPECT_DEATH(run({-1, 3, 4}), "group 0 has rows -1 to 3 of 4");
}

TEST(GroupedMatMulDeathTest, NamesTheArgumentOfWrongShape) {
  const auto x = Zeros<float>({4, 2}), weight = Zeros<float>({2, 3, 2});
  const Array<int32_t> three = {{4}, {0, 1, 2, 3}}, two = {{3}, {0, 1, 2}};
  auto y = Zeros<float>({4, 3});
  auto doubles = Zeros<double>({2, 3, 2});
  EXPECT_DEATH(Call(GroupedMatMulForwardArgs{.x = x, .weight = weight, .offsets = three, .y = y}),
               "grouped_matmul weight: wanted \\[3, 3, 2\\], got f32 \\[2, 3, 2\\]");
  EXPECT_DEATH(
      Call(GroupedMatMulWeightGradientArgs{
          .dy = y, .x = x, .offsets = two, .dweight = doubles, .write = Write::kOverwrite}),
      "grouped_matmul dweight: wanted f32, got f64");
}

}  // namespace trainyard::testing::grouped_matmul
