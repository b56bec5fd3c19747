// Proves kernels/attention/rope.h on the CPU: the table against its definition, the rotation
// against a plain one, backward as the transpose of forward, and the properties rotary embedding is
// used for.

#include "kernels/attention/rope.h"

#include <cmath>

#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::rope {

struct Size {
  int64_t batch, sequence, heads, kv_heads, head_dim;
  int64_t rotated = head_dim;  // Dims of a head.
  int64_t rows() const { return batch * sequence; }
  int64_t width() const { return (heads + 2 * kv_heads) * head_dim; }
};

template <typename A>
struct Table {
  explicit Table(const Size& size, Llama3RopeScaling scaling = {})
      : cos(Poison<A>({size.sequence, size.rotated / 2})), sin(cos) {
    Call(RopeTableArgs{.cos = cos,
                       .sin = sin,
                       .base = 10000,
                       .part = {.rows = size.sequence},
                       .scaling = scaling});
  }
  Array<A> cos, sin;
};

template <typename T>
Array<T> Rotate(const Array<T>& x, const Size& size, bool inverse = false, int threads = 2) {
  const Table<Accumulate<T>> table(size);
  auto y = Poison<T>(x.shape);
  Call(RopeArgs{.x = x,
                .cos = table.cos,
                .sin = table.sin,
                .heads = size.heads,
                .kv_heads = size.kv_heads,
                .head_dim = size.head_dim,
                .sequence = size.sequence,
                .y = y,
                .inverse = inverse},
       threads);
  return y;
}

Array<double> PlainRotate(const Array<double>& x, const Size& size) {
  Array<double> y = x;
  const int64_t d = size.head_dim;
  for (int64_t i = 0; i < int64_t(x.v.size()); ++i) {
    const int64_t t = i / size.width(), column = i % size.width();
    const int64_t half = size.rotated / 2;
    if (column >= (size.heads + size.kv_heads) * d || column % d >= 2 * half) continue;
    const int64_t pair = column % d % half;
    const double angle = double(t % size.sequence) * std::pow(10000, -double(pair) / double(half));
    const bool first = column % d < half;
    const double other = first ? -x.v[i + half] : x.v[i - half];
    y.v[i] = x.v[i] * std::cos(angle) + other * std::sin(angle);
  }
  return y;
}

class RopeTest : public ::testing::TestWithParam<Size> {
 protected:
  Size size = GetParam();
  Array<double> x = Normal<double>({size.rows(), size.width()}, 1);
};

TEST_P(RopeTest, RotatesQueriesAndKeysAndCopiesValues) {
  ExpectClose(Rotate(x, size).v, PlainRotate(x, size).v, 1e-12);
}

TEST_P(RopeTest, BackwardMatchesNumericGradient) {
  const auto dy = Normal<double>(x.shape, 2);
  ExpectGradient(
      Rotate(dy, size, true).v, x.v, [&] { return Dot(Rotate(x, size), dy); }, 1e-8);
}

template <typename T>
void ExpectAgreesWithF64(const Array<double>& exact, const Size& size) {
  const auto x = RoundedTo<T>(exact);
  const auto got = Rotate(Converted<T>(x), size);
  ExpectClose(Converted<double>(got).v, Rotate(x, size).v, Tolerance(DTypeOf<T>::value, 2));
}

TEST_P(RopeTest, LowerPrecisionsAgreeWithF64) {
  ExpectAgreesWithF64<float>(x, size);
  ExpectAgreesWithF64<bf16>(x, size);
}

INSTANTIATE_TEST_SUITE_P(Sizes, RopeTest,
                         ::testing::Values(Size{1, 1, 1, 1, 2}, Size{2, 5, 2, 1, 6},
                                           Size{3, 7, 4, 2, 16}, Size{1, 9, 3, 3, 10},
                                           Size{2, 5, 2, 1, 6, 4}, Size{3, 7, 4, 2, 32, 16},
                                           Size{1, 4, 2, 1, 5, 2}));

// Rows wider than one block of a GPU, in packs or one by one, and more rows than it has blocks.
TEST(Rope, RotatesWideAndManyRows) {
  for (const Size& size : {Size{1, 2, 40, 8, 128}, Size{1, 3, 40, 2, 14}, Size{2, 4300, 1, 1, 2},
                           Size{1, 2, 40, 8, 128, 64}, Size{1, 3, 40, 2, 14, 6}}) {
    const auto x = Normal<double>({size.rows(), size.width()}, 1);
    ExpectClose(Rotate(x, size).v, PlainRotate(x, size).v, 1e-12);
    ExpectAgreesWithF64<float>(x, size);
    ExpectAgreesWithF64<bf16>(x, size);
  }
}

TEST(Rope, OutputMayBeTheInput) {
  const Size size = {2, 5, 2, 1, 6};
  auto x = Normal<double>({10, size.width()}, 1);
  const auto want = Rotate(x, size).v;
  const Table<double> table(size);
  Call(RopeArgs{.x = x,
                .cos = table.cos,
                .sin = table.sin,
                .heads = 2,
                .kv_heads = 1,
                .head_dim = 6,
                .sequence = 5,
                .y = x});
  EXPECT_EQ(x.v, want);
}

// Frequencies of d = 128, base 500000 and factor 8, as released with Llama 3.1: the first are kept,
// the last divided by 8, those between are blended.
TEST(RopeTable, Llama3ScalingStretchesLongWavelengths) {
  auto cos = Poison<double>({2, 64}), sin = cos, plain_cos = cos, plain_sin = cos;
  Call(RopeTableArgs{.cos = plain_cos, .sin = plain_sin, .base = 500000, .part = {.rows = 2}});
  Call(RopeTableArgs{
      .cos = cos, .sin = sin, .base = 500000, .part = {.rows = 2}, .scaling = {.factor = 8}});
  const auto frequency = [](const Array<double>& table, int i) {
    return std::asin(table.v[64 + i]);
  };
  for (int i = 1; i < 64; ++i) {
    const double plain = std::pow(500000, -i / 64.0), wavelength = 2 * M_PI / plain;
    EXPECT_NEAR(frequency(plain_sin, i), plain, 1e-12);
    if (wavelength < 8192.0 / 4) {
      EXPECT_NEAR(frequency(sin, i), plain, 1e-12);
    } else if (wavelength > 8192.0) {
      EXPECT_NEAR(frequency(sin, i), plain / 8, 1e-12);
    } else {
      EXPECT_LT(frequency(sin, i), plain);
      EXPECT_GT(frequency(sin, i), plain / 8);
    }
  }
}

// Against the public implementation (transformers 5.23.0, ROPE_INIT_FUNCTIONS["llama3"] in f64):
// d = 32, base 500000, factor 32. The ninth is blended. Catches a wrong blend, whose bounds are
// kept.
TEST(RopeTable, Llama3ScalingIsThatOfThePublicImplementation) {
  const double wanted[] = {1.0,
                           0.44036660267178046,
                           0.19392274474868576,
                           0.08539710028576561,
                           0.03760603093086393,
                           0.016560440080994446,
                           0.0072926647372171085,
                           0.0032114459947525913,
                           0.00042955679655936815,
                           1.9461638184831125e-05,
                           8.570255489881478e-06,
                           3.7740542941082826e-06,
                           1.661967467795309e-06,
                           7.318749675440419e-07,
                           3.2229329303788936e-07,
                           1.4192720251899592e-07};
  auto cos = Poison<double>({2, 16}), sin = cos;
  Call(RopeTableArgs{
      .cos = cos, .sin = sin, .base = 500000, .part = {.rows = 2}, .scaling = {.factor = 32}});
  for (int i = 0; i < 16; ++i) {
    EXPECT_NEAR(std::asin(sin.v[16 + i]), wanted[i], 1e-13 * wanted[i]) << "frequency " << i;
  }
}

// Against the public implementation (transformers 5.24.0, ROPE_INIT_FUNCTIONS["yarn"] in f64) with
// gpt-oss' base and numbers, d = 32: the first two and the last seven lie outside of the ramp.
TEST(RopeTable, YarnIsThatOfThePublicImplementation) {
  constexpr double kMagnitude = 1.3465735902799727;
  const double wanted[] = {1.0,
                           0.4747820554769007,
                           0.2254180002028708,
                           0.10702442147781144,
                           0.050813274815461475,
                           0.019335001126540362,
                           0.006794959489732219,
                           0.0020937923789696887,
                           0.00045648391922324086,
                           3.8308812373753384e-05,
                           1.818833668168956e-05,
                           8.63549587543848e-06,
                           4.0999784818029795e-06,
                           1.9465962110014815e-06,
                           9.242089502428301e-07,
                           4.387978250864396e-07};
  auto cos = Poison<double>({2, 16}), sin = cos;
  Call(RopeTableArgs{
      .cos = cos, .sin = sin, .base = 150000, .part = {.rows = 2}, .yarn = {.factor = 32}});
  for (int i = 0; i < 16; ++i) {
    EXPECT_NEAR(cos.v[i], kMagnitude, 1e-15) << "at position 0";
    EXPECT_EQ(sin.v[i], 0);
    const double x = cos.v[16 + i], y = sin.v[16 + i];
    EXPECT_NEAR(std::atan2(y, x), wanted[i], 1e-13 * wanted[i]) << "frequency " << i;
    EXPECT_NEAR(std::hypot(x, y), kMagnitude, 1e-14) << "frequency " << i;
  }
}

TEST(RopeDeathTest, NamesWhatYarnCannotBe) {
  auto cos = Poison<double>({2, 16}), sin = cos;
  RopeTableArgs args{.cos = cos, .sin = sin, .base = 150000, .part = {.rows = 2}};
  args.yarn = {.factor = 0.5};
  EXPECT_DEATH(Call(args), "rope yarn: factor 0.5");
  args.yarn = {.factor = 32, .beta_fast = 1, .beta_slow = 1};
  EXPECT_DEATH(Call(args), "rope yarn: betas 1, 1");
  args.yarn = {.factor = 32};
  args.scaling.factor = 8;
  EXPECT_DEATH(Call(args), "rope yarn: beside a scaling by 8");
}

TEST(Rope, ValueHeadsOfAnyWidthAreCopied) {
  const Size size = {2, 5, 2, 1, 6};
  const Table<float> table(size);
  const auto packed = Normal<float>({10, size.width()}, 1);
  auto rotated = Poison<float>(packed.shape);
  // The same heads, with three columns of values more.
  const int64_t heads = 3 * 6, width = size.width() + 3;
  const auto x = Normal<float>({10, width}, 2);
  auto same = packed, y = Poison<float>(x.shape);
  for (int64_t i = 0; i < 10 * heads; ++i) {
    same.v[i / heads * size.width() + i % heads] = x.v[i / heads * width + i % heads];
  }
  const auto rotate = [&](const Array<float>& from, Array<float>& to) {
    Call(RopeArgs{.x = from,
                  .cos = table.cos,
                  .sin = table.sin,
                  .heads = 2,
                  .kv_heads = 1,
                  .head_dim = 6,
                  .sequence = 5,
                  .y = to});
  };
  rotate(same, rotated);
  rotate(x, y);
  for (int64_t i = 0; i < 10 * width; ++i) {
    const int64_t row = i / width, c = i % width;
    EXPECT_EQ(y.v[i], c < heads ? rotated.v[row * size.width() + c] : x.v[i]) << "at " << i;
  }
}

TEST(RopeDeathTest, NamesTheArgumentOfWrongShape) {
  const Size size = {2, 5, 2, 1, 6};
  const Table<float> table(size);
  auto x = Zeros<float>({10, size.width()}), narrow = Zeros<float>({10, 23});
  const auto args = [&](Array<float>& y, int64_t sequence, int64_t head_dim = 6) {
    return RopeArgs{.x = x,
                    .cos = table.cos,
                    .sin = table.sin,
                    .heads = 2,
                    .kv_heads = 1,
                    .head_dim = head_dim,
                    .sequence = sequence,
                    .y = y};
  };
  EXPECT_DEATH(Call(args(narrow, 5)), "rope y: wanted f32 \\[10, 24\\]");
  x = Zeros<float>({10, 17});
  EXPECT_DEATH(Call(args(x, 5)), "rope x: f32 \\[10, 17\\] for 2 query and 1 key heads of 6");
  x = Zeros<float>({10, size.width()});
  EXPECT_DEATH(Call(args(x, 6)), "rope sequence: 6 with a table of 5 positions");
  EXPECT_DEATH(Call(args(x, 5, 4)), "rope head_dim: 4 with a table of 3 pairs");
}

}  // namespace trainyard::testing::rope
