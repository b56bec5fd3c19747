// Proves kernels/state_space/causal_conv.h: the convolution against its formula, the gradients
// against numeric differentiation in f64, the lower precisions against f64; and that a sequence in
// parts, each with the tail of the part before it, has the results of the whole sequence.

#include "kernels/state_space/causal_conv.h"

#include <cmath>

#include "tests/kernels/call.h"
#include "tests/kernels/state_space/documents.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::causal_conv {

struct Size {
  int64_t parts, sequence, channels, taps;
  std::vector<int64_t> begins = {};  // As in DocumentPositions. Empty: no tensor says.
  int64_t tokens() const { return parts * sequence; }
};

struct Inputs {
  Array<double> x, weight, bias, tail, dy;
  Array<int32_t> positions = {};
};

Inputs Make(const Size& s) {
  return {Normal<double>({s.tokens(), s.channels}, 1),
          Normal<double>({s.channels, 1, s.taps}, 2),
          Normal<double>({s.channels}, 3),
          Normal<double>({s.parts * (s.taps - 1), s.channels}, 4),
          Normal<double>({s.tokens(), s.channels}, 5),
          DocumentPositions(s.tokens(), s.sequence, s.begins)};
}

template <typename T>
Inputs RoundedTo(const Inputs& in) {
  return {RoundedTo<T>(in.x),    RoundedTo<T>(in.weight), RoundedTo<T>(in.bias),
          RoundedTo<T>(in.tail), RoundedTo<T>(in.dy),     in.positions};
}

template <typename T>
Array<T> Convolve(const Inputs& in, const Size& s, bool tailed, int threads = 2) {
  const auto x = Converted<T>(in.x), weight = Converted<T>(in.weight);
  const auto bias = Converted<T>(in.bias), tail = Converted<T>(in.tail);
  auto y = Poison<T>(x.shape);
  CausalConvForwardArgs args{.x = x,
                             .weight = weight,
                             .bias = bias,
                             .sequence = s.sequence,
                             .y = y,
                             .document_positions = in.positions};
  if (tailed) args.tail = tail;
  Call(args, threads);
  return y;
}

template <typename T>
struct Gradients {
  Array<T> x, tail;
  Array<Accumulate<T>> weight, bias;
};

template <typename T>
Gradients<T> Backward(const Inputs& in, const Size& s, bool tailed, int threads = 2,
                      std::optional<double> before = {}) {
  using A = Accumulate<T>;
  const auto x = Converted<T>(in.x), weight = Converted<T>(in.weight), dy = Converted<T>(in.dy);
  const auto bias = Converted<T>(in.bias), tail = Converted<T>(in.tail);
  const A parameters = A(before.value_or(NAN));
  Gradients<T> out{Poison<T>(x.shape), Poison<T>(tail.shape), Filled<A>(weight.shape, parameters),
                   Filled<A>(bias.shape, parameters)};
  const Write write = before.has_value() ? Write::kAdd : Write::kOverwrite;
  CausalConvBackwardArgs args{.dy = dy,
                              .x = x,
                              .weight = weight,
                              .bias = bias,
                              .sequence = s.sequence,
                              .dx = out.x,
                              .dweight = out.weight,
                              .dbias = out.bias,
                              .write_dweight = write,
                              .write_dbias = write,
                              .document_positions = in.positions};
  if (tailed) args.tail = tail, args.dtail = out.tail;
  Call(args, threads);
  return out;
}

Array<double> Plain(const Inputs& in, const Size& s, bool tailed) {
  auto y = Zeros<double>(in.x.shape);
  for (int64_t t = 0; t < s.tokens(); ++t) {
    const int64_t part = t / s.sequence;
    for (int64_t c = 0; c < s.channels; ++c) {
      double sum = in.bias.v[size_t(c)];
      for (int64_t k = 0; k < s.taps; ++k) {
        const int64_t at = t % s.sequence - s.taps + 1 + k;
        const int64_t in_tail = part * (s.taps - 1) + at + s.taps - 1;
        const bool reads = in.positions.v.empty() || in.positions.v[size_t(t)] >= s.taps - 1 - k;
        const double x = !reads    ? 0
                         : at >= 0 ? in.x.v[size_t((part * s.sequence + at) * s.channels + c)]
                         : tailed  ? in.tail.v[size_t(in_tail * s.channels + c)]
                                   : 0;
        sum += in.weight.v[size_t(c * s.taps + k)] * x;
      }
      y.v[size_t(t * s.channels + c)] = sum / (1 + std::exp(-sum));
    }
  }
  return y;
}

template <typename T>
void ExpectAgreesWithF64(const Inputs& exact, const Size& s, bool tailed) {
  const Inputs in = RoundedTo<T>(exact);
  const auto got = Backward<T>(in, s, tailed);
  const auto want = Backward<double>(in, s, tailed);
  const DType dtype = DTypeOf<T>::value;
  ExpectClose(Converted<double>(Convolve<T>(in, s, tailed)).v, Plain(in, s, tailed).v,
              Tolerance(dtype, s.taps));
  ExpectClose(Converted<double>(got.x).v, want.x.v, Tolerance(dtype, s.taps));
  ExpectClose(Converted<double>(got.weight).v, want.weight.v, Tolerance(DType::kF32, s.tokens()));
  ExpectClose(Converted<double>(got.bias).v, want.bias.v, Tolerance(DType::kF32, s.tokens()));
  if (tailed) ExpectClose(Converted<double>(got.tail).v, want.tail.v, Tolerance(dtype, s.taps));
}

class CausalConvTest : public ::testing::TestWithParam<Size> {
 protected:
  Size size = GetParam();
  Inputs in = Make(size);
};

TEST_P(CausalConvTest, IsTheFormula) {
  for (const bool tailed : {false, true}) {
    ExpectClose(Convolve<double>(in, size, tailed).v, Plain(in, size, tailed).v, 1e-14);
  }
}

TEST_P(CausalConvTest, LowerPrecisionsAgreeWithF64) {
  for (const bool tailed : {false, true}) {
    ExpectAgreesWithF64<float>(in, size, tailed);
    ExpectAgreesWithF64<bf16>(in, size, tailed);
  }
}

// Fewer rows than taps; odd numbers of channels; the most taps; several runs of rows and several
// blocks of channels, in packs or one by one. Then documents: that begin with the first and the
// last token of a part, one token long, within the convolution of a token, around borders of runs.
INSTANTIATE_TEST_SUITE_P(Sizes, CausalConvTest,
                         ::testing::Values(Size{2, 1, 3, 4}, Size{1, 2, 5, 2}, Size{2, 5, 16, 3},
                                           Size{1, 12, 9, 8}, Size{2, 150, 8, 4},
                                           Size{1, 70, 328, 4}, Size{1, 65, 301, 4},
                                           Size{2, 7, 3, 4, {2, 3, 7, 13}}, Size{2, 1, 3, 4, {1}},
                                           Size{1, 12, 9, 8, {4, 7}},
                                           Size{1, 70, 5, 3, EveryToken(70)},
                                           Size{2, 150, 8, 4, {63, 64, 66, 130, 278, 279}}));

TEST(CausalConv, BackwardMatchesNumericGradient) {
  // The last size has several runs of rows on a GPU.
  for (const Size& size : {Size{2, 5, 3, 4}, Size{2, 2, 2, 4}, Size{1, 9, 2, 6}, Size{2, 70, 2, 4},
                           Size{2, 5, 3, 4, {1, 5, 8, 9}}, Size{2, 2, 2, 6, {3}},
                           Size{1, 70, 2, 4, {3, 62, 65, 66, 69}}}) {
    for (const bool tailed : {false, true}) {
      Inputs in = Make(size);
      const auto loss = [&] { return Dot(Convolve<double>(in, size, tailed), in.dy); };
      const auto got = Backward<double>(in, size, tailed);
      ExpectClose(got.x.v, NumericGrad(in.x.v, loss), 1e-8);
      ExpectClose(got.weight.v, NumericGrad(in.weight.v, loss), 1e-8);
      ExpectClose(got.bias.v, NumericGrad(in.bias.v, loss), 1e-8);
      if (tailed) ExpectClose(got.tail.v, NumericGrad(in.tail.v, loss), 1e-8);
      const auto added = Backward<double>(in, size, tailed, 2, /*before=*/0.5);
      for (size_t i = 0; i < got.weight.v.size(); ++i) {
        EXPECT_NEAR(added.weight.v[i], got.weight.v[i] + 0.5, 1e-12);
      }
      EXPECT_NEAR(added.bias.v[1], got.bias.v[1] + 0.5, 1e-12);
    }
  }
}

TEST(CausalConv, PartsWithTailsAreTheWholeSequence) {
  const Size whole = {1, 12, 5, 4}, halves = {2, 6, 5, 4};
  Inputs in = Make(whole);
  const auto want = Convolve<double>(in, whole, /*tailed=*/true);
  in.tail.v.insert(in.tail.v.end(), in.x.v.begin() + 3 * 5, in.x.v.begin() + 6 * 5);
  in.tail.shape = {6, 5};
  EXPECT_EQ(Convolve<double>(in, halves, /*tailed=*/true).v, want.v);
}

TEST(CausalConv, DocumentsAreAsIfAlone) {
  const Size size = {1, 150, 5, 4, {0, 1, 3, 6, 63, 64, 65, 100, 149}};
  const Inputs in = Make(size);
  const auto y = Convolve<double>(in, size, /*tailed=*/false);
  const auto got = Backward<double>(in, size, /*tailed=*/false);
  auto weight = Zeros<double>(got.weight.shape), bias = Zeros<double>(got.bias.shape);
  ForEachDocument(150, size.begins, [&](int64_t first, int64_t count) {
    SCOPED_TRACE(first);
    const Size alone = {1, count, 5, 4};
    Inputs of = in;
    of.x = RowsOf(in.x, first, count), of.dy = RowsOf(in.dy, first, count);
    of.positions = {};
    const auto want = Backward<double>(of, alone, /*tailed=*/false);
    EXPECT_EQ(RowsOf(y, first, count).v, Convolve<double>(of, alone, /*tailed=*/false).v);
    EXPECT_EQ(RowsOf(got.x, first, count).v, want.x.v);
    for (size_t i = 0; i < weight.v.size(); ++i) weight.v[i] += want.weight.v[i];
    for (size_t i = 0; i < bias.v.size(); ++i) bias.v[i] += want.bias.v[i];
  });
  ExpectClose(got.weight.v, weight.v, 1e-12);
  ExpectClose(got.bias.v, bias.v, 1e-12);
}

TEST(CausalConv, ThreadsDoNotChangeBits) {
  const Size size = {2, 90, 200, 4};
  const Inputs in = Make(size);
  EXPECT_EQ(Convolve<float>(in, size, true, 1).v, Convolve<float>(in, size, true, 3).v);
  const auto one = Backward<float>(in, size, true, 1), three = Backward<float>(in, size, true, 3);
  EXPECT_EQ(one.x.v, three.x.v);
  EXPECT_EQ(one.tail.v, three.tail.v);
  EXPECT_EQ(one.weight.v, three.weight.v);
  EXPECT_EQ(one.bias.v, three.bias.v);
}

TEST(CausalConvDeathTest, NamesTheArgumentOfWrongShape) {
  const Size size = {1, 4, 3, 4};
  Inputs in = Make(size);
  in.weight = Normal<double>({3, 9}, 2);
  EXPECT_DEATH(Convolve<double>(in, size, false), "causal_conv weight: wanted 2 to 8 taps");
  in = Make(size);
  in.tail = Normal<double>({2, 3}, 2);
  EXPECT_DEATH(Convolve<double>(in, size, true), "causal_conv tail: wanted f64 \\[3, 3\\]");
  in.positions = Zeros<int32_t>({3});
  EXPECT_DEATH(Convolve<double>(in, size, false),
               "causal_conv document_positions: wanted i32 with 4 elements");
}

}  // namespace trainyard::testing::causal_conv
