// Proves kernels/products/low_rank_squares.h: the squares against the formula in f64, the lower
// precisions against f64.

#include "kernels/products/low_rank_squares.h"

#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::low_rank_squares {

constexpr double kScale = 1.5;

struct Size {
  int64_t n, k, r;
};

struct Inputs {
  Array<double> w, a, b;
};

Inputs Make(const Size& s) {
  return {Normal<double>({s.n, s.k}, 1), Normal<double>({s.r, s.k}, 2),
          Normal<double>({s.n, s.r}, 3)};
}

template <typename T>
Array<Accumulate<T>> Compute(const Inputs& in, int threads = 2) {
  const auto w = Converted<T>(in.w), a = Converted<T>(in.a), b = Converted<T>(in.b);
  auto squares = Poison<Accumulate<T>>({in.w.shape[0], 2});
  Call(LowRankSquaresArgs{.w = w, .a = a, .b = b, .scale = kScale, .squares = squares}, threads);
  return squares;
}

class LowRankSquaresTest : public ::testing::TestWithParam<Size> {
 protected:
  Size size = GetParam();
  Inputs in = Make(size);
};

TEST_P(LowRankSquaresTest, AreTheFormula) {
  auto want = Zeros<double>({size.n, 2});
  for (int64_t n = 0; n < size.n; ++n) {
    for (int64_t k = 0; k < size.k; ++k) {
      const double own = in.w.v[size_t(n * size.k + k)];
      double sum = own;
      for (int64_t r = 0; r < size.r; ++r) {
        sum += kScale * in.b.v[size_t(n * size.r + r)] * in.a.v[size_t(r * size.k + k)];
      }
      want.v[size_t(2 * n)] += own * own;
      want.v[size_t(2 * n + 1)] += sum * sum;
    }
  }
  ExpectClose(Compute<double>(in).v, want.v, 1e-13);
}

template <typename T>
void ExpectAgreesWithF64(const Inputs& exact) {
  const Inputs in = {RoundedTo<T>(exact.w), RoundedTo<T>(exact.a), RoundedTo<T>(exact.b)};
  ExpectClose(Converted<double>(Compute<T>(in)).v, Compute<double>(in).v,
              Tolerance(DType::kF32, in.w.shape[1] + in.b.shape[1]));
}

TEST_P(LowRankSquaresTest, LowerPrecisionsAgreeWithF64) {
  ExpectAgreesWithF64<float>(in);
  ExpectAgreesWithF64<bf16>(in);
}

// Rows and columns that are no multiples of the tiles; packs and single elements of a GPU; more
// columns than its block takes at once; a rank that fills its shared memory.
INSTANTIATE_TEST_SUITE_P(Sizes, LowRankSquaresTest,
                         ::testing::Values(Size{1, 1, 1}, Size{3, 7, 2}, Size{9, 64, 3},
                                           Size{5, 300, 8}, Size{4, 5000, 2}, Size{2, 16, 1024}));

TEST(LowRankSquares, ThreadsDoNotChangeBits) {
  const Inputs in = Make({91, 310, 5});
  EXPECT_EQ(Compute<float>(in, 1).v, Compute<float>(in, 3).v);
}

TEST(LowRankSquaresDeathTest, NamesTheArgumentOfWrongShape) {
  Inputs in = Make({4, 6, 2});
  in.a = Normal<double>({2, 5}, 2);
  EXPECT_DEATH(Compute<double>(in),
               "low_rank_squares a: wanted f64 \\[2, 6\\], got f64 \\[2, 5\\]");
}

}  // namespace trainyard::testing::low_rank_squares
