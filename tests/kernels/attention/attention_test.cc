// Proves kernels/attention/attention.h: forward against the definition written plainly, gradient
// against numeric differentiation in f64, the lower precisions against f64.

#include "kernels/attention/attention.h"

#include <cmath>

#include "tests/kernels/attention/attention_views.h"
#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::attention {

struct Size {
  int64_t batch, sequence, heads, kv_heads, head_dim;
  AttentionMask mask = {};
  int64_t rows() const { return batch * sequence; }
  int64_t width() const { return (heads + 2 * kv_heads) * head_dim; }
  AttentionDims dims() const {
    return {.sequence = sequence,
            .heads = heads,
            .kv_heads = kv_heads,
            .head_dim = head_dim,
            .value_dim = head_dim,
            .scale = 1 / std::sqrt(double(head_dim)),
            .mask = mask};
  }
};

void PrintTo(const Size& size, std::ostream* out) {
  *out << "batch " << size.batch << " sequence " << size.sequence << " heads " << size.heads << '/'
       << size.kv_heads << " head_dim " << size.head_dim;
}

template <typename T>
struct Outputs {
  Array<T> out, dqkv;
  Array<Accumulate<T>> lse;
};

template <typename T>
Outputs<T> Compute(const Array<double>& qkv64, const Array<double>& dout64, const Size& size,
                   int threads = 2) {
  const auto qkv = Converted<T>(qkv64), dout = Converted<T>(dout64);
  Outputs<T> o{Poison<T>(dout.shape), Poison<T>(qkv.shape),
               Poison<Accumulate<T>>({size.batch, size.heads, size.sequence})};
  Call(PackedForward(qkv, size.dims(), o.out, o.lse), threads);
  Call(PackedBackward(qkv, size.dims(), {o.out, o.lse}, dout, o.dqkv), threads);
  return o;
}

// The definition, one query at a time.
Outputs<double> PlainForward(const Array<double>& qkv, const Size& size) {
  const auto [batch, sequence, heads, kv_heads, d, mask] = size;
  Outputs<double> o{
      Zeros<double>({size.rows(), heads * d}), {}, Zeros<double>({batch, heads, sequence})};
  for (int64_t task = 0; task < size.rows() * heads; ++task) {
    const int64_t row = task / heads, head = task % heads, kv = head / (heads / kv_heads);
    const int64_t b = row / sequence, i = row % sequence;
    const double* q = &qkv.v[row * size.width() + head * d];
    std::vector<double> p;
    double sum = 0;
    for (int64_t j = 0; j <= i; ++j) {
      const double* k = &qkv.v[(b * sequence + j) * size.width() + (heads + kv) * d];
      double score = 0;
      for (int64_t c = 0; c < d; ++c) score += q[c] * k[c];
      p.push_back(std::exp(score / std::sqrt(double(d))));
      sum += p.back();
    }
    for (int64_t j = 0; j <= i; ++j) {
      const double* v = &qkv.v[(b * sequence + j) * size.width() + (heads + kv_heads + kv) * d];
      for (int64_t c = 0; c < d; ++c) o.out.v[(row * heads + head) * d + c] += p[j] / sum * v[c];
    }
    o.lse.v[(b * heads + head) * sequence + i] = std::log(sum);
  }
  return o;
}

class AttentionTest : public ::testing::TestWithParam<Size> {
 protected:
  Size size = GetParam();
  Array<double> qkv = Normal<double>({size.rows(), size.width()}, 1);
  Array<double> dout = Normal<double>({size.rows(), size.heads* size.head_dim}, 2);
};

TEST_P(AttentionTest, ForwardMatchesTheDefinition) {
  const auto got = Compute<double>(qkv, dout, size);
  const auto want = PlainForward(qkv, size);
  ExpectClose(got.out.v, want.out.v, 1e-12);
  ExpectClose(got.lse.v, want.lse.v, 1e-12);
}

template <typename T>
void ExpectAgreesWithF64(const Array<double>& exact, const Array<double>& exact_dout,
                         const Size& size) {
  const auto qkv = RoundedTo<T>(exact), dout = RoundedTo<T>(exact_dout);
  const auto got = Compute<T>(qkv, dout, size);
  const auto want = Compute<double>(qkv, dout, size);
  const DType dtype = DTypeOf<T>::value;
  const int64_t reduction = size.sequence * size.heads / size.kv_heads + size.head_dim;
  ExpectClose(Converted<double>(got.out).v, want.out.v, Tolerance(dtype, reduction));
  ExpectClose(Converted<double>(got.lse).v, want.lse.v, Tolerance(DType::kF32, reduction));
  ExpectClose(Converted<double>(got.dqkv).v, want.dqkv.v, Tolerance(dtype, reduction));
}

TEST_P(AttentionTest, LowerPrecisionsAgreeWithF64) {
  ExpectAgreesWithF64<float>(qkv, dout, size);
  ExpectAgreesWithF64<bf16>(qkv, dout, size);
}

// One key tile exactly, one more, one fewer; strips cut short; groups; one token; odd head dims;
// what cuDNN does on a GPU.
INSTANTIATE_TEST_SUITE_P(Sizes, AttentionTest,
                         ::testing::Values(Size{1, 1, 1, 1, 2}, Size{2, 3, 2, 1, 6},
                                           Size{1, 17, 4, 2, 16}, Size{2, 64, 2, 2, 8},
                                           Size{1, 65, 3, 1, 33}, Size{1, 63, 1, 1, 64},
                                           Size{1, 200, 6, 2, 6}, Size{1, 130, 2, 1, 256},
                                           Size{2, 67, 2, 1, 128}, Size{2, 128, 4, 2, 64},
                                           Size{1, 256, 2, 1, 128}));

class AttentionGradientTest : public AttentionTest {};

TEST_P(AttentionGradientTest, BackwardMatchesNumericGradient) {
  auto out = Poison<double>(dout.shape);
  auto lse = Poison<double>({size.batch, size.heads, size.sequence});
  const auto loss = [&] {
    Call(PackedForward(qkv, size.dims(), out, lse), 1);
    return Dot(out, dout);
  };
  ExpectGradient(Compute<double>(qkv, dout, size).dqkv.v, qkv.v, loss, 1e-8);
}

INSTANTIATE_TEST_SUITE_P(Sizes, AttentionGradientTest,
                         ::testing::Values(Size{1, 1, 1, 1, 2}, Size{2, 3, 2, 1, 6},
                                           Size{1, 17, 4, 2, 5}, Size{1, 66, 2, 1, 2},
                                           Size{1, 130, 3, 1, 1}));

// Scores of several hundred overflow unless the largest is taken out, in every tile anew.
TEST(Attention, LargeScoresDoNotOverflow) {
  const Size size = {1, 130, 1, 1, 4};
  auto qkv = Normal<double>({130, size.width()}, 1);
  for (int64_t i = 0; i < 130 * size.width(); ++i) {
    if (i % size.width() < 8) qkv.v[i] *= 30;
  }
  qkv = RoundedTo<float>(qkv);
  const auto dout = Normal<double>({130, 4}, 2);
  const auto got = Compute<float>(qkv, dout, size);
  const auto want = Compute<double>(qkv, dout, size);
  ExpectClose(Converted<double>(got.out).v, want.out.v, 1e-3);
  ExpectClose(Converted<double>(got.dqkv).v, want.dqkv.v, 1e-3);
}

TEST(Attention, LaterTokensDoNotChangeEarlierOutputs) {
  const Size size = {1, 100, 2, 1, 8};
  auto qkv = Normal<double>({100, size.width()}, 1);
  const auto dout = Normal<double>({100, 16}, 2);
  const auto before = Compute<float>(qkv, dout, size).out.v;
  for (int64_t i = 70 * size.width(); i < 100 * size.width(); ++i) qkv.v[i] = 1e6;
  const auto after = Compute<float>(qkv, dout, size).out.v;
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 70 * 16, after.begin()));
}

TEST(Attention, ThreadsDoNotChangeBits) {
  const Size size = {3, 70, 4, 2, 16};
  const auto qkv = Normal<double>({size.rows(), size.width()}, 1);
  const auto dout = Normal<double>({size.rows(), 64}, 2);
  const auto one = Compute<float>(qkv, dout, size, 1), three = Compute<float>(qkv, dout, size, 3);
  EXPECT_EQ(one.out.v, three.out.v);
  EXPECT_EQ(one.dqkv.v, three.dqkv.v);
}

// What is kept between calls has no part in a result: the first call here fills it with NaN. The
// lengths are about those of which cuDNN takes whole tiles, with groups of heads and every mask.
TEST(Attention, NothingOfAnEarlierCallIsLeft) {
  std::vector<Size> sizes = {{2, 384, 1, 1, 64}};
  for (const int64_t sequence : {127, 128, 129, 200}) {
    for (const AttentionMask& mask :
         {AttentionMask{}, AttentionMask{.window = 100}, AttentionMask{.causal = false}}) {
      sizes.push_back({2, sequence, 1, 1, 64, mask});
    }
  }
  for (const Size& size : sizes) {
    const int64_t sequence = size.sequence;
    SCOPED_TRACE(::testing::Message() << "sequence " << sequence << ", causal " << size.mask.causal
                                      << ", window " << size.mask.window);
    const auto exact = RoundedTo<bf16>(Normal<double>({size.rows(), size.width()}, 1));
    const auto exact_dout = RoundedTo<bf16>(Normal<double>({size.rows(), 64}, 2));
    auto qkv = Poison<bf16>(exact.shape), dout = Poison<bf16>(exact_dout.shape);
    Outputs<bf16> got;
    Exec exec = TestedBackend().NewExec(2);
    for (const bool poisoned : {true, false}) {
      if (!poisoned) qkv = Converted<bf16>(exact), dout = Converted<bf16>(exact_dout);
      got = {Poison<bf16>(dout.shape), Poison<bf16>(qkv.shape), Poison<float>({2, 1, sequence})};
      Call(exec, PackedForward(qkv, size.dims(), got.out, got.lse));
      Call(exec, PackedBackward(qkv, size.dims(), {got.out, got.lse}, dout, got.dqkv));
    }
    const auto want = Compute<double>(exact, exact_dout, size);
    const int64_t reduction = 2 * sequence + 64;
    ExpectClose(Converted<double>(got.out).v, want.out.v, Tolerance(DType::kBF16, reduction));
    ExpectClose(Converted<double>(got.lse).v, want.lse.v, Tolerance(DType::kF32, reduction));
    ExpectClose(Converted<double>(got.dqkv).v, want.dqkv.v, Tolerance(DType::kBF16, reduction));
  }
}

TEST(AttentionDeathTest, NamesTheArgumentThatIsWrong) {
  const Size size = {1, 4, 2, 1, 8};
  auto qkv = Zeros<float>({4, size.width()}), out = Zeros<float>({4, 15});
  auto lse = Zeros<float>({1, 2, 4});
  auto dims = size.dims();
  const auto run = [&] {
    auto args = PackedForward(qkv, size.dims(), out, lse);
    args.dims = dims;
    Call(args);
  };
  EXPECT_DEATH(run(), "attention out: wanted f32 \\[4, 16\\]");
  dims.sequence = 3;
  EXPECT_DEATH(run(), "attention sequence: 3 does not divide");
  dims = size.dims();
  dims.kv_heads = 3;
  EXPECT_DEATH(run(), "attention heads: 2 query, 3 key");
  dims = size.dims();
  dims.head_dim = 257;
  EXPECT_DEATH(run(), "attention head_dim: 257");
  dims = size.dims();
  dims.value_dim = 7;
  EXPECT_DEATH(run(), "attention v: wanted f32 \\[4, 7\\], got f32 \\[4, 8\\]");
  dims = size.dims();
  dims.mask.window = -1;
  EXPECT_DEATH(run(), "attention window: -1, legal are 0");
  dims = size.dims();
  dims.soft_cap = -2;
  EXPECT_DEATH(run(), "attention soft_cap: -2, legal are 0");
}

}  // namespace trainyard::testing::attention
