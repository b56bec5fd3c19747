// Causal grouped-query attention over a packed query/key/value projection.
//
//   per sequence and query head h, with key/value head h / (a/g):
//   s[i,j]   = scale <q[i], k[j]>            for j <= i
//   lse[i]   = log sum_j exp(s[i,j])         p[i,j] = exp(s[i,j] - lse[i])
//   out[i,:] = sum_j p[i,j] v[j,:]
//
//   backward recomputes s and p from lse, with delta[i] = <dout[i], out[i]>:
//   ds[i,j] = p[i,j] (<dout[i], v[j]> - delta[i]) scale
//   dq[i] = sum_j ds[i,j] k[j]   dk[j] = sum_i ds[i,j] q[i]   dv[j] = sum_i p[i,j] dout[i]
//   where dk and dv also sum over the a/g query heads of their group.
//
// The S x S square is never stored. Sums are taken in f32 (f64 when qkv is f64). Of bf16 tensors a
// device may round p and ds to bf16 before they are multiplied, and flush denormals, as tensor
// cores and CPUs with AVX512_BF16 do: results are a device's. Source: Dao et al. 2022,
// arXiv:2205.14135; groups: Ainslie et al. 2023, arXiv:2305.13245. Letters: B sequences, S tokens
// of each, a query heads, g key/value heads, d head dim. Bitwise deterministic, on the CPU for any
// thread count; backward unless it is told that it need not be.

#pragma once

#include "kernels/device/expect.h"

namespace trainyard {

struct AttentionDims {
  int64_t sequence;  // S
  int64_t heads;     // a
  int64_t kv_heads;  // g, divides a
  int64_t head_dim;  // d, 1 to 256
  double scale;      // positive, usually 1 / sqrt(d)
};

struct AttentionForwardArgs {
  ConstTensor qkv;  // [B S, (a+2g)d]  f64 | f32 | bf16; heads in the order query, key, value
  AttentionDims dims;
  Tensor out;  // [B S, a d]  out, dtype of qkv
  Tensor lse;  // [B, a, S]   out, f32 (f64 when qkv is f64); kept for backward
};

struct AttentionBackwardArgs {
  ConstTensor qkv;   // [B S, (a+2g)d]  the forward input
  ConstTensor out;   // [B S, a d]      the forward output
  ConstTensor lse;   // [B, a, S]       the forward output
  ConstTensor dout;  // [B S, a d]      dtype of qkv
  AttentionDims dims;
  Tensor dqkv;  // [B S, (a+2g)d]  out, dtype of qkv, overwritten; aliases nothing
  // False: a device may add to dq in an order that differs from call to call, which takes less
  // time and memory on Hopper.
  bool deterministic = true;
};

inline void Check(const AttentionDims& dims) {
  const auto& [s, a, g, d, scale] = dims;
  CHECK(s > 0) << "attention sequence: " << s << " tokens";
  CHECK(a > 0 && g > 0 && a % g == 0) << "attention heads: " << a << " query, " << g << " key";
  CHECK(d > 0 && d <= 256) << "attention head_dim: " << d << ", legal are 1 to 256";
  CHECK(scale > 0) << "attention scale: " << scale << ", must be positive";
}

inline void Check(const AttentionDims& dims, const ConstTensor& qkv) {
  const auto& [s, a, g, d, scale] = dims;
  Check(dims);
  ExpectColumns("attention qkv", qkv);
  ExpectFloat("attention qkv", qkv);
  ExpectMatrix("attention qkv", qkv, qkv.dtype, qkv.shape.rows(), (a + 2 * g) * d);
  CHECK(qkv.shape.rows() % s == 0)
      << "attention sequence: " << s << " does not divide the rows of qkv " << qkv.shape;
}

inline void Check(const AttentionForwardArgs& args) {
  Check(args.dims, args.qkv);
  const int64_t rows = args.qkv.shape.rows(), a = args.dims.heads, d = args.dims.head_dim;
  ExpectMatrix("attention out", args.out, args.qkv.dtype, rows, a * d);
  ExpectElements("attention lse", args.lse, AccumulateOfDType(args.qkv.dtype), rows * a);
}

inline void Check(const AttentionBackwardArgs& args) {
  Check(args.dims, args.qkv);
  const int64_t rows = args.qkv.shape.rows(), a = args.dims.heads, d = args.dims.head_dim;
  ExpectMatrix("attention out", args.out, args.qkv.dtype, rows, a * d);
  ExpectElements("attention lse", args.lse, AccumulateOfDType(args.qkv.dtype), rows * a);
  ExpectMatrix("attention dout", args.dout, args.qkv.dtype, rows, a * d);
  ExpectMatrix("attention dqkv", args.dqkv, args.qkv.dtype, rows, args.qkv.shape.back());
}

}  // namespace trainyard
