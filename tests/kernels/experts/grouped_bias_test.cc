// Proves kernels/experts/grouped_bias.h on the CPU: bias and gradients of every group against a
// naive loop in f64, for every dtype, with groups without rows and rows of no group; that they are
// each other's gradients; what is left alone.

#include "kernels/experts/grouped_bias.h"

#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::grouped_bias {

struct Case {
  int64_t n;
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

struct Inputs {
  Array<double> y, bias, w, dy, dw;
};

Inputs Make(const Case& c) {
  return {Normal<double>({c.bound, c.n}, 1), Normal<double>({c.groups(), c.n}, 2),
          Normal<double>({c.bound}, 3), Normal<double>({c.bound, c.n}, 4),
          Normal<double>({c.bound}, 5)};
}

template <typename T>
struct Outputs {
  Array<T> y;
  Array<Accumulate<T>> dbias, dw;
};

// dbias begins as 3; `passes` of it add up.
template <typename T>
Outputs<T> Compute(const Case& c, const Inputs& in, bool weighted, int passes = 1,
                   int threads = 2) {
  using A = Accumulate<T>;
  const auto bias = Converted<T>(in.bias), dy = Converted<T>(in.dy);
  const auto w = Converted<A>(in.w);
  const Array<int32_t> offsets = {{c.groups() + 1}, c.offsets};
  const ConstTensor factor = weighted ? ConstTensor(w) : ConstTensor();
  Outputs<T> out{Converted<T>(in.y), Filled<A>(bias.shape, A(3)), Converted<A>(in.dw)};
  Call(GroupedBiasForwardArgs{.bias = bias, .w = factor, .offsets = offsets, .y = out.y}, threads);
  for (int pass = 0; pass < passes; ++pass) {
    Call(GroupedBiasGradientArgs{.dy = dy,
                                 .w = factor,
                                 .offsets = offsets,
                                 .dbias = out.dbias,
                                 .write = pass == 0 ? Write::kOverwrite : Write::kAdd},
         threads);
  }
  Call(GroupedBiasFactorGradientArgs{.dy = dy, .bias = bias, .offsets = offsets, .dw = out.dw},
       threads);
  return out;
}

Outputs<double> Naive(const Case& c, const Inputs& in, bool weighted) {
  Outputs<double> out{in.y, Zeros<double>(in.bias.shape), in.dw};
  for (int64_t g = 0; g < c.groups(); ++g) {
    for (int64_t r = c.offsets[size_t(g)]; r < c.offsets[size_t(g) + 1]; ++r) {
      const double w = weighted ? in.w.v[size_t(r)] : 1;
      for (int64_t n = 0; n < c.n; ++n) {
        const size_t at = size_t(r * c.n + n), of = size_t(g * c.n + n);
        out.y.v[at] += w * in.bias.v[of];
        out.dbias.v[of] += w * in.dy.v[at];
        out.dw.v[size_t(r)] += in.dy.v[at] * in.bias.v[of];
      }
    }
  }
  return out;
}

template <typename T>
void ExpectNaive(const Case& c, bool weighted) {
  SCOPED_TRACE(::testing::Message() << c.n << ' ' << DTypeOf<T>::value << ' ' << weighted);
  const Inputs exact = Make(c);
  const Inputs in = {RoundedTo<T>(exact.y), RoundedTo<T>(exact.bias), RoundedTo<float>(exact.w),
                     RoundedTo<T>(exact.dy), RoundedTo<float>(exact.dw)};
  auto want = Naive(c, in, weighted);
  const auto got = Compute<T>(c, in, weighted);
  const DType dtype = DTypeOf<T>::value, accumulate = AccumulateOfDType(dtype);
  ExpectClose(Converted<double>(got.y).v, want.y.v, Tolerance(dtype, 1));
  ExpectClose(Converted<double>(got.dbias).v, want.dbias.v, Tolerance(accumulate, c.longest()));
  ExpectClose(Converted<double>(got.dw).v, want.dw.v, Tolerance(accumulate, c.n));
  for (double& d : want.dbias.v) d *= 2;
  ExpectClose(Converted<double>(Compute<T>(c, in, weighted, 2).dbias).v, want.dbias.v,
              Tolerance(accumulate, c.longest()));
  // Rows of no group are left alone, exactly.
  for (const int64_t r : {int64_t{0}, c.bound - 1}) {
    if (r >= c.offsets.front() && r < c.offsets.back()) continue;
    EXPECT_EQ(double(got.y.v[size_t(r * c.n)]), in.y.v[size_t(r * c.n)]) << r;
    EXPECT_EQ(double(got.dw.v[size_t(r)]), in.dw.v[size_t(r)]) << r;
  }
}

// Columns of a part of a GPU's block, and of several; many rows, and more groups than it has
// blocks.
std::vector<Case> Cases() {
  std::vector<Case> cases = {
      {1, {0, 1}, 1},        {7, {0, 3, 3, 8}, 8},       {16, {2, 2, 6, 40, 40, 41}, 50},
      {33, {0, 70, 70}, 90}, {8, {0, 0, 0}, 4},          {300, {1, 20, 31}, 40},
      {2056, {0, 2, 3}, 3},  {2, {0, 4300, 8600}, 8600}, {3, {}, 1100}};
  for (int32_t g = 0; g <= cases.back().bound; ++g) cases.back().offsets.push_back(g);
  return cases;
}

TEST(GroupedBias, EveryGroupAndDTypeMatchesANaiveLoop) {
  for (const Case& c : Cases()) {
    for (const bool weighted : {false, true}) {
      ExpectNaive<double>(c, weighted);
      ExpectNaive<float>(c, weighted);
      ExpectNaive<bf16>(c, weighted);
    }
  }
}

TEST(GroupedBias, GradientsMatchNumericOnes) {
  const Case c = {4, {1, 3, 3, 6}, 8};
  Inputs in = Make(c);
  in.dw = Zeros<double>(in.dw.shape);
  const auto loss = [&] { return Dot(Compute<double>(c, in, true).y, in.dy); };
  const auto want_dbias = NumericGrad(in.bias.v, loss), want_dw = NumericGrad(in.w.v, loss);
  const auto got = Compute<double>(c, in, true);
  ExpectClose(got.dbias.v, want_dbias, 1e-8);
  ExpectClose(got.dw.v, want_dw, 1e-8);
}

TEST(GroupedBias, ThreadsDoNotChangeBits) {
  const Case c = {200, {3, 100, 190, 191}, 200};
  const Inputs in = Make(c);
  const auto one = Compute<float>(c, in, true, 1, 1), three = Compute<float>(c, in, true, 1, 3);
  EXPECT_EQ(one.y.v, three.y.v);
  EXPECT_EQ(one.dbias.v, three.dbias.v);
  EXPECT_EQ(one.dw.v, three.dw.v);
}

TEST(GroupedBiasDeathTest, NamesOffsetsThatDoNotFit) {
  const auto bias = Zeros<float>({2, 3});
  auto y = Zeros<float>({4, 3}), dbias = Zeros<float>({2, 3}), dw = Zeros<float>({4});
  const auto run = [&](const std::vector<int32_t>& offset) {
    const Array<int32_t> offsets = {{3}, offset};
    Call(GroupedBiasForwardArgs{.bias = bias, .offsets = offsets, .y = y});
  };
  EXPECT_DEATH(run({0, 3, 2}), "grouped_bias offsets: group 1 has rows 3 to 2 of 4");
  EXPECT_DEATH(run({0, 3, 5}), "group 1 has rows 3 to 5 of 4");
  EXPECT_DEATH(run({-1, 3, 4}), "group 0 has rows -1 to 3 of 4");
  const Array<int32_t> beyond = {{3}, {0, 3, 5}};
  EXPECT_DEATH(Call(GroupedBiasGradientArgs{
                   .dy = y, .offsets = beyond, .dbias = dbias, .write = Write::kAdd}),
               "grouped_bias offsets: group 1 has rows 3 to 5 of 4");
  EXPECT_DEATH(
      Call(GroupedBiasFactorGradientArgs{.dy = y, .bias = bias, .offsets = beyond, .dw = dw}),
      "grouped_bias offsets: group 1 has rows 3 to 5 of 4");
}

TEST(GroupedBiasDeathTest, NamesTheArgumentOfWrongShape) {
  const auto bias = Zeros<float>({2, 3}), w = Zeros<float>({3});
  const Array<int32_t> three = {{4}, {0, 1, 2, 3}}, two = {{3}, {0, 1, 2}};
  auto y = Zeros<float>({4, 3});
  auto doubles = Zeros<double>({2, 3});
  EXPECT_DEATH(Call(GroupedBiasForwardArgs{.bias = bias, .offsets = three, .y = y}),
               "grouped_bias bias: wanted f32 \\[3, 3\\]");
  EXPECT_DEATH(Call(GroupedBiasForwardArgs{.bias = bias, .w = w, .offsets = two, .y = y}),
               "grouped_bias w: wanted f32 with 4 elements");
  EXPECT_DEATH(Call(GroupedBiasGradientArgs{
                   .dy = y, .offsets = two, .dbias = doubles, .write = Write::kAdd}),
               "grouped_bias dbias: wanted f32, got f64");
}

}  // namespace trainyard::testing::grouped_bias
