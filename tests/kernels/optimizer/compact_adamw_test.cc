// Proves kernels/optimizer/compact_adamw.h: the update is AdamW's to the bit of the formula in f32,
// moments are rounded at random without bias, and an element's bits depend on its place in the
// parameter alone.

#include "kernels/optimizer/compact_adamw.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "tests/kernels/call.h"
#include "tests/testing/array.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::compact_adamw {

constexpr uint64_t kStream = HashName("model.layers.0.mlp.up_proj.weight.moments");

StepState ThirdStep() {
  StepState state{.step = 3, .learning_rate = 0.01, .seed = 7};
  state.clip_factor = 0.5;
  return state;
}

// The state of a box [R, C], by default a whole parameter.
struct Box {
  Array<bf16> weight, m, v;
  Array<int16_t> remainder;
  Array<float> master, grad;  // `master` is what weight and remainder make up.
  int64_t global_columns, first_row = 0, first_column = 0;

  explicit Box(const Shape& shape)
      : weight(Zeros<bf16>(shape)),
        m(Normal<bf16>(shape, 2)),
        v(Normal<bf16>(shape, 3)),
        remainder(Zeros<int16_t>(shape)),
        master(Normal<float>(shape, 1)),
        grad(Normal<float>(shape, 4)),
        global_columns(shape.back()) {
    for (bf16& x : v.v) x = bf16(x * x);
    SplitMasters();
  }
  void SplitMasters() {
    for (size_t i = 0; i < master.v.size(); ++i) {
      const SplitWeight split = Split(master.v[i]);
      weight.v[i].bits = split.weight;
      remainder.v[i] = split.remainder;
    }
  }
  CompactAdamWArgs Args(StepState& state) {
    return {.weight = weight,
            .m = m,
            .v = v,
            .grad = grad,
            .options = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1},
            .stream = kStream,
            .global_columns = global_columns,
            .first_row = first_row,
            .first_column = first_column,
            .state = &state,
            .remainder = remainder};
  }
  // The same without remainders.
  CompactAdamWArgs WholeArgs(StepState& state) {
    CompactAdamWArgs args = Args(state);
    args.weight = master;
    args.remainder = {};
    return args;
  }
  uint64_t number(size_t i) const {
    const int64_t columns = weight.shape.back();
    return uint64_t((first_row + int64_t(i) / columns) * global_columns + first_column +
                    int64_t(i) % columns);
  }
};

uint16_t RoundedAtRandom(float x, uint32_t random) {
  const float size = std::abs(x);
  const auto lower = uint16_t(std::bit_cast<uint32_t>(size) >> 16);
  const uint32_t above = std::bit_cast<uint32_t>(size) & 0xffff;
  const bool up = above + random > 0xffff;
  return uint16_t((lower + up) | (std::signbit(x) ? 0x8000 : 0));
}

// The formula of compact_adamw.h, written as it is printed there, each operation rounded to f32.
// Products that are added are not rounded by themselves.
void PlainStep(Box& box) {
  const auto f = [](double x) { return float(x); };
  const float beta1 = f(0.9), beta2 = f(0.95), fresh1 = f(1 - 0.9), fresh2 = f(1 - 0.95);
  const float rate = f(0.01 / (1 - std::pow(0.9, 3)));
  const float root = f(1 / std::sqrt(1 - std::pow(0.95, 3)));
  const uint64_t key = RandomBits(7, kStream, 3);
  for (size_t i = 0; i < box.master.v.size(); ++i) {
    const float g = box.grad.v[i] * 0.5f;
    const float m = std::fma(beta1, float(box.m.v[i]), fresh1 * g);
    const float v = std::fma(beta2, float(box.v.v[i]), fresh2 * g * g);
    const float update = rate * m / std::fma(std::sqrt(v), root, 1e-8f);
    box.master.v[i] = std::fma(f(1 - 0.01 * 0.1), box.master.v[i], -update);
    const auto random = uint32_t(Mix(key ^ box.number(i)));
    box.m.v[i].bits = RoundedAtRandom(m, random & 0xffff);
    box.v.v[i].bits = RoundedAtRandom(v, random >> 16);
  }
  box.SplitMasters();
}

template <typename T>
std::vector<uint16_t> Halves(const Array<T>& a) {
  std::vector<uint16_t> halves;
  for (const T& x : a.v) halves.push_back(uint16_t(WordSum(x)));
  return halves;
}

void ExpectSameBits(const Box& got, const Box& want) {
  EXPECT_EQ(Halves(got.weight), Halves(want.weight));
  EXPECT_EQ(got.remainder.v, want.remainder.v);
  EXPECT_EQ(Halves(got.m), Halves(want.m));
  EXPECT_EQ(Halves(got.v), Halves(want.v));
}

const Shape kShapes[] = {{1}, {9001}, {600, 1000}, {7, 24}, {5, 3}, {3, 4, 40}};

TEST(CompactAdamW, HasTheBitsOfTheFormula) {
  for (const Shape& shape : kShapes) {
    StepState state = ThirdStep();
    Box got(shape), want(shape);
    Call(got.Args(state));
    PlainStep(want);
    ExpectSameBits(got, want);
  }
}

TEST(CompactAdamW, UpdatesMastersThatAreWholeAlike) {
  for (const Shape& shape : kShapes) {
    StepState state = ThirdStep();
    Box got(shape), want(shape);
    Call(got.WholeArgs(state));
    PlainStep(want);
    EXPECT_EQ(got.master.v, want.master.v);
    EXPECT_EQ(Halves(got.m), Halves(want.m));
    EXPECT_EQ(Halves(got.v), Halves(want.v));
  }
}

// Rows [first_row, + rows) and columns [first_column, + columns) of a box.
Box PartOf(const Box& whole, const Shape& offset, const Shape& shape) {
  Box part(shape);
  part.global_columns = whole.global_columns;
  part.first_row = offset[0], part.first_column = offset[1];
  for (size_t i = 0; i < part.master.v.size(); ++i) {
    const size_t from = part.number(i);
    part.master.v[i] = whole.master.v[from];
    part.grad.v[i] = whole.grad.v[from];
    part.m.v[i] = whole.m.v[from];
    part.v.v[i] = whole.v.v[from];
  }
  part.SplitMasters();
  return part;
}

TEST(CompactAdamW, APartHasTheBitsOfTheWhole) {
  StepState state = ThirdStep();
  const Box before({40, 48});
  Box after = before;
  Call(after.Args(state));
  for (const auto& [offset, shape] : {std::pair<Shape, Shape>{{0, 0}, {40, 24}},
                                      {{0, 24}, {40, 24}},
                                      {{8, 0}, {3, 48}},
                                      {{39, 5}, {1, 7}},
                                      {{2, 16}, {20, 13}}}) {
    Box part = PartOf(before, offset, shape);
    Call(part.Args(state));
    Box want = PartOf(after, offset, shape);
    for (size_t i = 0; i < want.weight.v.size(); ++i) {
      want.weight.v[i] = after.weight.v[want.number(i)];
      want.remainder.v[i] = after.remainder.v[want.number(i)];
    }
    ExpectSameBits(part, want);
  }
}

TEST(CompactAdamW, ThreadsDoNotChangeBits) {
  StepState state = ThirdStep();
  Box one({501, 103}), three({501, 103});
  Call(one.Args(state), 1);
  Call(three.Args(state), 3);
  ExpectSameBits(one, three);
}

// A rank's share of the parameters may begin anywhere.
TEST(CompactAdamW, UpdatesAnyRangeAndNothingBesides) {
  StepState state = ThirdStep();
  const Box before({9001});
  Box got = before;
  const auto inner = [](auto& a) {
    auto* data = a.v.data();
    return Tensor{{data + 1, DTypeOf<std::remove_pointer_t<decltype(data)>>::value, {8999}}};
  };
  CompactAdamWArgs args = got.Args(state);
  args.weight = inner(got.weight), args.remainder = inner(got.remainder);
  args.m = inner(got.m), args.v = inner(got.v), args.grad = inner(got.grad);
  args.first_column = 1;
  Call(args);
  Box want = before;
  PlainStep(want);
  for (const size_t end : {size_t{0}, size_t{9000}}) {
    want.weight.v[end] = before.weight.v[end], want.remainder.v[end] = before.remainder.v[end];
    want.m.v[end] = before.m.v[end], want.v.v[end] = before.v.v[end];
  }
  ExpectSameBits(got, want);
}

template <typename T>
uint32_t SumOfHalves(const Array<T>& a) {
  const std::vector<uint16_t> halves = Halves(a);
  return std::accumulate(halves.begin(), halves.end(), uint32_t{0});
}
WordSums SumsOf(const Box& box) {
  return {SumOfHalves(box.weight) + SumOfHalves(box.remainder), SumOfHalves(box.m),
          SumOfHalves(box.v)};
}

TEST(CompactAdamW, SumsTheWordsThatItReadsAndWrites) {
  for (const Shape& shape : kShapes) {
    StepState state = ThirdStep();
    Box box(shape);
    const WordSums before = SumsOf(box);
    Call(box.Args(state), 3);
    EXPECT_EQ(state.read, before);
    EXPECT_EQ(state.written, SumsOf(box));
    StepState summed{.words = 5};
    Call(SumWordsArgs{.x = box.remainder, .state = &summed});
    EXPECT_EQ(summed.words, 5 + SumOfHalves(box.remainder));
  }
}

TEST(CompactAdamW, ChangesNothingAfterAStepThatIsNotFinite) {
  StepState state = ThirdStep();
  state.finite = 0;
  const Box before({9001});
  Box box = before;
  box.grad = Poison<float>({9001});
  Call(box.Args(state));
  ExpectSameBits(box, before);
  EXPECT_EQ(state.read, WordSums());
  EXPECT_EQ(state.written, WordSums());
}

// A gradient of a hundredth of the distance between two moments moves the mean of many as it moves
// an exact moment. Rounded to nearest, no moment would move.
TEST(CompactAdamW, SmallGradientsMoveMomentsOnAverage) {
  constexpr int64_t kElements = 100'000, kSteps = 20;
  Box box({kElements});
  box.m = Filled<bf16>({kElements}, bf16(1.0f));
  box.v = Filled<bf16>({kElements}, bf16(1.0f));
  const float distance = 0x1p-7f;
  box.grad = Filled<float>({kElements}, 2 * (1 - distance / 10));  // Halved by the clip factor.
  for (int64_t step = 1; step <= kSteps; ++step) {
    StepState state = ThirdStep();
    state.step = step;
    Call(box.Args(state));
  }
  double m = 1, v = 1, got_m = 0, got_v = 0;
  const double g = 1 - distance / 10;
  for (int64_t step = 0; step < kSteps; ++step) {
    m = 0.9 * m + 0.1 * g;
    v = 0.95 * v + 0.05 * g * g;
  }
  for (const bf16& x : box.m.v) got_m += double(float(x)) / kElements;
  for (const bf16& x : box.v.v) got_v += double(float(x)) / kElements;
  // Rounding errs by a distance at most in each step; 20 of them decay as moments do.
  EXPECT_NEAR(got_m, m, 5 * distance / std::sqrt(double(kElements)) * 3);
  EXPECT_NEAR(got_v, v, 5 * distance / std::sqrt(double(kElements)) * 3);
  EXPECT_LT(got_m, 1 - distance / 30);
}

TEST(CompactAdamW, RoundsUpAsOftenAsTheDistanceSays) {
  const float x = std::bit_cast<float>(0x40490fdbu);  // pi: 0x0fdb of 0x10000 above 0x4049.
  int up = 0;
  for (uint32_t random = 0; random < 0x10000; ++random) {
    const uint16_t rounded = RoundAtRandom(x, random);
    ASSERT_TRUE(rounded == 0x4049 || rounded == 0x404a);
    up += rounded == 0x404a;
    ASSERT_EQ(RoundAtRandom(-x, random), rounded | 0x8000);
  }
  EXPECT_EQ(up, 0x0fdb);
}

TEST(CompactAdamW, ExactAndExtremeMomentsStayWhatTheyAre) {
  const auto bits = [](uint32_t u, uint32_t random) {
    return RoundAtRandom(std::bit_cast<float>(u), random);
  };
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {  // Whatever is a bf16, zeroes included.
    const bool nan = (upper & 0x7fff) > 0x7f80;
    ASSERT_EQ(bits(upper << 16, 0xffff), nan ? upper | 0x40 : upper);
  }
  EXPECT_EQ(bits(0x7f7fffff, 0xffff), 0x7f7f);  // The largest finite number.
  EXPECT_EQ(bits(0xff7fffff, 0xffff), 0xff7f);
  EXPECT_EQ(bits(0x7f7effff, 0xffff), 0x7f7f);
  EXPECT_EQ(bits(0x7f800001, 0), 0x7fc0);  // A NaN whose payload is in the lower half.
  EXPECT_EQ(bits(0x00000001, 0xffff), 1);  // Subnormal.
  EXPECT_EQ(bits(0x00000001, 0xfffe), 0);
}

TEST(CompactAdamWDeathTest, NamesTheArgumentThatIsWrong) {
  StepState state = ThirdStep();
  Box box({9001});
  CompactAdamWArgs args = box.Args(state);
  args.remainder = {};
  EXPECT_DEATH(Call(args), "compact_adamw weight: wanted f32 with 9001 elements");
  args = box.Args(state);
  args.first_column = 1;
  EXPECT_DEATH(Call(args), "compact_adamw global_columns: 9001, box of 9001 columns from 1");
}

}  // namespace trainyard::testing::compact_adamw
