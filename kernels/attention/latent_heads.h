// The heads of multi-head latent attention, packed as kernels/attention/attention.h wants them.
// Each head of a query or key has a part without positions and a part with rotary positions; all
// heads of a token share the rotary part of the key.
//
//   query head: [q[h, 0 .. n), rotated q[h, n .. n+r)]
//   key head:   [kv[h, 0 .. n), rotated k_rope]
//   value head: kv[h, n .. n+e)
//
// The rotation is that of kernels/attention/rope.h, but of the pairs (2i, 2i + 1), as in the public
// checkpoints. Backward rotates by minus the angle; the gradient of k_rope is the sum over heads,
// in the order of heads.
//
// Source: DeepSeek-V2, arXiv:2405.04434, section 2.1. Letters: T tokens, a heads, n width without
// positions, r rotary width (even), e value width, S rows of the table. Sums are taken in f32 (f64
// when the operands are f64). Bitwise deterministic for any thread count.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

inline constexpr int64_t kMaxLatentRope = 256;

struct LatentHeadsForwardArgs {
  ConstTensor q;       // [T, a(n+r)]   f64 | f32 | bf16
  ConstTensor kv;      // [T, a(n+e)]   dtype of q
  ConstTensor k_rope;  // [T, r]        dtype of q
  ConstTensor cos;     // [S, r/2]      f32 (f64 when q is f64)
  ConstTensor sin;     // [S, r/2]      dtype of cos
  int64_t heads;       // a
  int64_t sequence;    // <= S; token t takes row t % sequence of the table
  Tensor qkv;          // [T, 2a(n+r) + a e]  out, dtype of q
};

struct LatentHeadsBackwardArgs {
  ConstTensor dqkv;  // [T, 2a(n+r) + a e]  f64 | f32 | bf16
  ConstTensor cos;   // [S, r/2]
  ConstTensor sin;   // [S, r/2]
  int64_t heads;
  int64_t sequence;
  Tensor dq;       // [T, a(n+r)]   out, dtype of dqkv
  Tensor dkv;      // [T, a(n+e)]   out, dtype of dqkv
  Tensor dk_rope;  // [T, r]        out, dtype of dqkv
};

// The widths of a head.
struct LatentWidths {
  int64_t nope, rope, value;  // n, r, e
  constexpr int64_t query() const { return nope + rope; }
  constexpr int64_t kv() const { return nope + value; }
};

inline LatentWidths LatentWidthsOf(int64_t heads, const ConstTensor& q, const ConstTensor& kv,
                                   const ConstTensor& k_rope) {
  const int64_t rope = k_rope.shape.back(), nope = q.shape.back() / heads - rope;
  return {.nope = nope, .rope = rope, .value = kv.shape.back() / heads - nope};
}

// The operands that both directions share.
struct LatentOperands {
  ConstTensor q, kv, k_rope, qkv;  // Or the gradients of these.
  ConstTensor cos, sin;
  int64_t heads, sequence;
};
inline void Check(const LatentOperands& args) {
  const auto& [q, kv, k_rope, qkv, cos, sin, heads, sequence] = args;
  const int64_t t = q.shape.rows(), rope = ExpectColumns("latent_heads k_rope", k_rope);
  ExpectFloat("latent_heads q", q);
  ExpectColumns("latent_heads q", q), ExpectColumns("latent_heads kv", kv);
  CHECK(heads >= 1 && q.shape.back() % heads == 0 && kv.shape.back() % heads == 0)
      << "latent_heads: q " << q.shape << " and kv " << kv.shape << " for " << heads << " heads";
  CHECK(rope % 2 == 0 && rope <= kMaxLatentRope)
      << "latent_heads k_rope: wanted an even width of at most " << kMaxLatentRope << ", got "
      << k_rope.shape;
  const LatentWidths w = LatentWidthsOf(heads, q, kv, k_rope);
  CHECK(w.nope >= 0 && w.value >= 1)
      << "latent_heads: heads of " << q.shape.back() / heads << " and " << kv.shape.back() / heads
      << " with a rotary part of " << rope;
  ExpectMatrix("latent_heads kv", kv, q.dtype, t, heads * w.kv());
  ExpectMatrix("latent_heads k_rope", k_rope, q.dtype, t, rope);
  ExpectMatrix("latent_heads qkv", qkv, q.dtype, t, heads * (2 * w.query() + w.value));
  const DType statistic = AccumulateOfDType(q.dtype);
  ExpectMatrix("latent_heads cos", cos, statistic, cos.shape.rows(), rope / 2);
  ExpectMatrix("latent_heads sin", sin, statistic, cos.shape.rows(), rope / 2);
  CHECK(sequence > 0 && sequence <= cos.shape.rows())
      << "latent_heads sequence: " << sequence << " with a table of " << cos.shape.rows()
      << " positions";
}

inline void Check(const LatentHeadsForwardArgs& args) {
  Check(LatentOperands{args.q, args.kv, args.k_rope, args.qkv, args.cos, args.sin, args.heads,
                       args.sequence});
}

inline void Check(const LatentHeadsBackwardArgs& args) {
  Check(LatentOperands{args.dq, args.dkv, args.dk_rope, args.dqkv, args.cos, args.sin, args.heads,
                       args.sequence});
}

}  // namespace trainyard
