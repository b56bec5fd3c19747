// Proves kernels/attention/latent_heads.h on the CPU: the packed heads against
// kernels/attention/rope.h and plain copies, the gradients against numeric differentiation in f64,
// the lower precisions against f64.

#include "kernels/attention/latent_heads.h"

#include "kernels/attention/rope.h"
#include "tests/kernels/call.h"
#include "tests/testing/numeric_grad.h"
#include "tests/testing/tolerance.h"

namespace trainyard::testing::latent_heads {

struct Size {
  int64_t batch, sequence, a, n, r, e;
  int64_t t() const { return batch * sequence; }
  int64_t query() const { return n + r; }
  int64_t packed() const { return a * (2 * query() + e); }
};

struct Inputs {
  Array<double> q, kv, k_rope, dqkv;
};

Inputs Make(const Size& s) {
  return {Normal<double>({s.t(), s.a * s.query()}, 1),
          Normal<double>({s.t(), s.a * (s.n + s.e)}, 2), Normal<double>({s.t(), s.r}, 3),
          Normal<double>({s.t(), s.packed()}, 4)};
}

template <typename A>
struct Table {
  explicit Table(const Size& s) : cos(Poison<A>({s.sequence, s.r / 2})), sin(cos) {
    Call(RopeTableArgs{.cos = cos, .sin = sin, .base = 100, .part = {.rows = s.sequence}});
  }
  Array<A> cos, sin;
};

template <typename T>
Array<T> Pack(const Inputs& in, const Size& s, int threads = 2) {
  const Table<Accumulate<T>> table(s);
  const auto q = Converted<T>(in.q), kv = Converted<T>(in.kv), k_rope = Converted<T>(in.k_rope);
  auto qkv = Poison<T>({s.t(), s.packed()});
  Call(LatentHeadsForwardArgs{.q = q,
                              .kv = kv,
                              .k_rope = k_rope,
                              .cos = table.cos,
                              .sin = table.sin,
                              .heads = s.a,
                              .sequence = s.sequence,
                              .qkv = qkv},
       threads);
  return qkv;
}

template <typename T>
struct Gradients {
  Array<T> dq, dkv, dk_rope;
};

template <typename T>
Gradients<T> Unpack(const Inputs& in, const Size& s, int threads = 2) {
  const Table<Accumulate<T>> table(s);
  const auto dqkv = Converted<T>(in.dqkv);
  Gradients<T> out{Poison<T>(in.q.shape), Poison<T>(in.kv.shape), Poison<T>(in.k_rope.shape)};
  Call(LatentHeadsBackwardArgs{.dqkv = dqkv,
                               .cos = table.cos,
                               .sin = table.sin,
                               .heads = s.a,
                               .sequence = s.sequence,
                               .dq = out.dq,
                               .dkv = out.dkv,
                               .dk_rope = out.dk_rope},
       threads);
  return out;
}

// Where kernels/attention/rope.h has a column of a rotated head: the first of each pair, then the
// second ones.
int64_t HalfOf(int64_t column, const Size& s) { return column / 2 + column % 2 * (s.r / 2); }

// The rotary columns of one head of each token, rotated by kernels/attention/rope.h.
Array<double> Rotated(const Array<double>& x, int64_t begin, const Size& s) {
  auto head = Zeros<double>({s.t(), 3 * s.r});  // A query, a key and a value head.
  const int64_t width = x.shape.back();
  for (int64_t t = 0; t < s.t(); ++t) {
    for (int64_t i = 0; i < s.r; ++i) {
      head.v[size_t(t * 3 * s.r + HalfOf(i, s))] = x.v[size_t(t * width + begin + i)];
    }
  }
  const Table<double> table(s);
  Call(RopeArgs{.x = head,
                .cos = table.cos,
                .sin = table.sin,
                .heads = 1,
                .kv_heads = 1,
                .head_dim = s.r,
                .sequence = s.sequence,
                .y = head});
  return head;
}

class LatentHeadsTest : public ::testing::TestWithParam<Size> {
 protected:
  Size size = GetParam();
  Inputs in = Make(size);
};

TEST_P(LatentHeadsTest, PacksCopiesAndRotations) {
  const Size& s = size;
  const Array<double> qkv = Pack<double>(in, s), key = Rotated(in.k_rope, 0, s);
  std::vector<double> want(qkv.v.size());
  for (int64_t h = 0; h < s.a; ++h) {
    const Array<double> query = Rotated(in.q, h * s.query() + s.n, s);
    for (int64_t t = 0; t < s.t(); ++t) {
      const auto at = [&](int64_t column) -> double& {
        return want[size_t(t * s.packed() + column)];
      };
      const double* const q = &in.q.v[size_t((t * s.a + h) * s.query())];
      const double* const kv = &in.kv.v[size_t((t * s.a + h) * (s.n + s.e))];
      for (int64_t i = 0; i < s.query(); ++i) {
        const size_t rotated = size_t(t * 3 * s.r + HalfOf(i - s.n, s));
        at(h * s.query() + i) = i < s.n ? q[i] : query.v[rotated];
        at((s.a + h) * s.query() + i) = i < s.n ? kv[i] : key.v[rotated];
      }
      for (int64_t i = 0; i < s.e; ++i) at(2 * s.a * s.query() + h * s.e + i) = kv[s.n + i];
    }
  }
  ExpectClose(qkv.v, want, 1e-14);
}

TEST_P(LatentHeadsTest, BackwardMatchesNumericGradient) {
  const auto loss = [&] { return Dot(Pack<double>(in, size), in.dqkv); };
  const auto got = Unpack<double>(in, size);
  ExpectGradient(got.dq.v, in.q.v, loss, 1e-8);
  ExpectGradient(got.dkv.v, in.kv.v, loss, 1e-8);
  ExpectGradient(got.dk_rope.v, in.k_rope.v, loss, 1e-8);
}

template <typename T>
void ExpectAgreesWithF64(const Inputs& exact, const Size& size) {
  const Inputs in = {RoundedTo<T>(exact.q), RoundedTo<T>(exact.kv), RoundedTo<T>(exact.k_rope),
                     RoundedTo<T>(exact.dqkv)};
  const auto got = Unpack<T>(in, size);
  const auto want = Unpack<double>(in, size);
  const DType dtype = DTypeOf<T>::value;
  ExpectClose(Converted<double>(Pack<T>(in, size)).v, Pack<double>(in, size).v,
              Tolerance(dtype, 2));
  ExpectClose(Converted<double>(got.dq).v, want.dq.v, Tolerance(dtype, 2));
  ExpectClose(Converted<double>(got.dkv).v, want.dkv.v, Tolerance(dtype, 2));
  ExpectClose(Converted<double>(got.dk_rope).v, want.dk_rope.v, Tolerance(dtype, size.a));
}

TEST_P(LatentHeadsTest, LowerPrecisionsAgreeWithF64) {
  ExpectAgreesWithF64<float>(in, size);
  ExpectAgreesWithF64<bf16>(in, size);
}

// One head and more heads than a block of a GPU has warps; no part without positions; odd widths.
INSTANTIATE_TEST_SUITE_P(Sizes, LatentHeadsTest,
                         ::testing::Values(Size{1, 1, 1, 1, 2, 1}, Size{2, 3, 3, 5, 4, 7},
                                           Size{1, 4, 11, 3, 6, 2}, Size{1, 2, 2, 0, 8, 3},
                                           Size{1, 2, 1, 33, 66, 40}, Size{2, 2, 10, 16, 24, 8}));

TEST(LatentHeads, ThreadsDoNotChangeBits) {
  const Size size = {2, 64, 4, 24, 16, 24};
  const Inputs in = Make(size);
  EXPECT_EQ(Pack<float>(in, size, 1).v, Pack<float>(in, size, 3).v);
  const auto one = Unpack<float>(in, size, 1), three = Unpack<float>(in, size, 3);
  EXPECT_EQ(one.dq.v, three.dq.v);
  EXPECT_EQ(one.dkv.v, three.dkv.v);
  EXPECT_EQ(one.dk_rope.v, three.dk_rope.v);
}

TEST(LatentHeadsDeathTest, NamesTheArgumentOfWrongShape) {
  const Size size = {1, 2, 2, 3, 4, 5};
  Inputs in = Make(size);
  in.kv = Normal<double>({size.t(), 15}, 2);
  EXPECT_DEATH(Pack<double>(in, size),
               "latent_heads: q \\[2, 14\\] and kv \\[2, 15\\] for 2 heads");
  in = Make(size);
  in.k_rope = Normal<double>({size.t(), 3}, 3);
  EXPECT_DEATH(Pack<double>(in, size), "latent_heads k_rope: wanted an even width");
}

}  // namespace trainyard::testing::latent_heads
