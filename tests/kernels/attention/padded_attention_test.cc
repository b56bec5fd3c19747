// Proves kernels/cuda/attention/padded_attention.h with a kernel of ours in the place of the one
// that wants whole tiles: to the bit, the results are those without padding.

#include "kernels/cuda/attention/padded_attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/attention/cudnn_attention_plan.h"
#include "kernels/cuda/attention/attention_core.h"
#include "tests/kernels/call.h"
#include "tests/testing/array.h"

namespace trainyard::testing {
namespace {

constexpr int64_t kTokens = 16, kBatch = 3, kHeads = 4, kKeyHeads = 2, kHeadDim = 8, kValueDim = 6;

template <typename Args>
bool Plain(Exec& exec, const Args& args) {
  Check(cuda::ViewsOf(args));
  cuda::Run(exec, CoreOf<float>(cuda::ViewsOf(args)));
  return true;
}
template <typename Args>
bool OfWholeTiles(Exec& exec, const Args& args) {
  EXPECT_EQ(args.dims.sequence % kTokens, 0);
  return Plain(exec, args);
}
template <typename Args>
bool Refuse(Exec&, const Args&) {
  return false;
}

// Returns what `attention` returns. Calls it with copies on the device.
template <typename Args>
bool Run(Exec& exec, const Args& args, absl::FunctionRef<bool(const Args&)> attention) {
  bool done = false;
  RunKernel<Args>(exec, args, [&](const Args& on_device) { done = attention(on_device); });
  return done;
}
template <typename Args>
bool Pad(Exec& exec, const Args& args, cuda::Attempt<Args> attention) {
  return Run<Args>(exec, args, [&](const Args& on_device) {
    return cuda::PadSequences(exec, on_device, kTokens, attention);
  });
}

struct Tensors {
  AttentionDims dims;
  Array<float> qkv, dout, out, lse, dqkv;

  explicit Tensors(int64_t sequence, uint64_t seed = 1)
      : dims{sequence, kHeads, kKeyHeads, kHeadDim, kValueDim, 0.25},
        qkv(Normal<float>({kBatch * sequence, PackedWidth(dims)}, seed)),
        dout(Normal<float>({kBatch * sequence, dims.out_columns()}, seed + 1)),
        out(Poison<float>(dout.shape)),
        lse(Poison<float>({kBatch, kHeads, sequence})),
        dqkv(Poison<float>(qkv.shape)) {}
  cuda::PackedAttentionForwardArgs forward() {
    return {.qkv = qkv, .dims = dims, .out = out, .lse = lse};
  }
  cuda::PackedAttentionBackwardArgs backward() {
    return {.qkv = qkv, .out = out, .lse = lse, .dout = dout, .dims = dims, .dqkv = dqkv};
  }
};

void ExpectSame(const Tensors& got, const Tensors& want) {
  EXPECT_EQ(got.out.v, want.out.v);
  EXPECT_EQ(got.lse.v, want.lse.v);
  EXPECT_EQ(got.dqkv.v, want.dqkv.v);
}

Tensors WithoutPadding(Tensors tensors) {
  Exec exec = TestedBackend().NewExec(1);
  const auto plain = [&](const auto& args) { return Plain(exec, args); };
  Run<cuda::PackedAttentionForwardArgs>(exec, tensors.forward(), plain);
  Run<cuda::PackedAttentionBackwardArgs>(exec, tensors.backward(), plain);
  return tensors;
}

// Several lengths and two calls of each on one stream: what an earlier call left in the copies, NaN
// at the second call of a length, has no part.
TEST(PaddedAttention, GivesTheBitsOfAttentionWithoutPadding) {
  Exec exec = TestedBackend().NewExec(1);
  for (const int64_t sequence : {17, 31, 8, 17, 31}) {
    Tensors nan(sequence);
    nan.qkv = Poison<float>(nan.qkv.shape), nan.dout = Poison<float>(nan.dout.shape);
    for (Tensors got : {Tensors(sequence, 1), nan, Tensors(sequence, 3)}) {
      const bool poisoned = std::isnan(got.qkv.v[0]);
      const Tensors given = got;
      EXPECT_TRUE(Pad(exec, got.forward(), OfWholeTiles));
      EXPECT_TRUE(Pad(exec, got.backward(), OfWholeTiles));
      if (!poisoned) ExpectSame(got, WithoutPadding(given));
    }
  }
}

TEST(PaddedAttention, LeavesToOthersWhatItWouldMoreThanDoubleAndWhatIsRefused) {
  Exec exec = TestedBackend().NewExec(1);
  Tensors small(7), large(8);
  EXPECT_FALSE(Pad(exec, small.forward(), OfWholeTiles));
  EXPECT_FALSE(Pad(exec, small.backward(), OfWholeTiles));
  EXPECT_FALSE(Pad(exec, large.forward(), Refuse));
  EXPECT_FALSE(Pad(exec, large.backward(), Refuse));
  // No second attempt, and no copies for one.
  EXPECT_FALSE(Pad(exec, large.forward(), OfWholeTiles));
  EXPECT_FALSE(Pad(exec, large.backward(), OfWholeTiles));
  EXPECT_TRUE(std::isnan(large.out.v[0]) && std::isnan(large.dqkv.v[0]));
}

TEST(PaddedAttention, LeavesToOthersWhatThereIsNoMemoryFor) {
  Exec exec = TestedBackend().NewExec(1);
  Tensors tensors(17);  // The host's memory serves, as attention that is refused reads nothing.
  cuda::PackedAttentionForwardArgs forward = tensors.forward();
  forward.qkv.shape = {17 * (int64_t{1} << 42), forward.qkv.shape.back()};
  EXPECT_FALSE(cuda::PadSequences(exec, forward, kTokens, OfWholeTiles));
  cuda::PackedAttentionBackwardArgs backward = tensors.backward();
  backward.qkv.shape = forward.qkv.shape;
  EXPECT_FALSE(cuda::PadSequences(exec, backward, kTokens, OfWholeTiles));
  TestedBackend().Synchronize(exec);
}

}  // namespace
}  // namespace trainyard::testing
