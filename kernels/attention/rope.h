// Rotary position embedding of the query and key heads of a packed projection, and its table.
//
//   table: frequency[i] = base^(-2i/r), scaled as below
//          angle[s,i]   = part.position(s) * frequency[i]
//   head:  y[i]         = x[i] cos - x[i+r/2] sin        for i < r/2, with s = t % sequence
//          y[i+r/2]     = x[i+r/2] cos + x[i] sin
//          y[i]         = x[i]                           for i >= r
//
// The pairs (i, i + r/2) are those of "rotate half", in the order of Hugging Face's weights.
// Backward is the rotation by minus the angle: inverse = true, with dy as x.
//
// Llama 3 scaling (factor > 0), w = 2 pi / frequency the wavelength:
//   w < original_context / high_frequency_factor: unchanged;
//   w > original_context / low_frequency_factor:  frequency / factor;
//   in between:  (1 - s) frequency / factor + s frequency,
//                with s = (original_context / w - low) / (high - low).
//
// YaRN (yarn.factor > 0), in place of Llama 3 scaling. pair(n) is the pair that turns n times
// within the original context.
//   pair(n) = r ln(original_context / (2 pi n)) / (2 ln base),
//   low = max(pair(beta_fast), 0), high = max(min(pair(beta_slow), r - 1), low + 1e-3), where
//         whole_pairs first rounds pair(beta_fast) down and pair(beta_slow) up,
//   m[i] = (i - low) / (high - low), limited to [0, 1];
//   frequency becomes (1 - m) frequency + m frequency / factor;
//   cos and sin are multiplied by `magnitude`, or by 0.1 ln(factor) + 1 if it is 0.
//
// Source: Su et al. 2021, arXiv:2104.09864, eq. 34; scaling: the Llama 3.1 release; YaRN: Peng et
// al. 2023, arXiv:2309.00071, section 3.2 and eq. 22. Letters: T tokens, a query heads, g key/value
// heads, d head dim, r rotated dims of a head (even), e head dim of values, S rows of the table.
// Bitwise deterministic for any thread count.

#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/device/expect.h"
#include "kernels/device/sequence_part.h"

namespace trainyard {

struct Llama3RopeScaling {
  double factor = 0;  // 0: no scaling
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  int64_t original_context = 8192;
};

struct YarnRopeScaling {
  double factor = 0;  // 0: no scaling; otherwise >= 1
  double beta_fast = 32;
  double beta_slow = 1;  // < beta_fast; with whole_pairs also equal
  int64_t original_context = 4096;
  double magnitude = 0;      // 0: 0.1 ln(factor) + 1
  bool whole_pairs = false;  // As in DeepSeek-V3.
};

struct RopeTableArgs {
  Tensor cos;         // [S, r/2]  out, f64 | f32; computed in f64
  Tensor sin;         // [S, r/2]  out, dtype of cos
  double base;        // > 0
  SequencePart part;  // rows: S
  Llama3RopeScaling scaling = {};
  YarnRopeScaling yarn = {};  // not together with `scaling`
};

// YaRN's change of a table: from pair `low` to pair `high` the frequencies move to the scaled ones.
struct YarnRamp {
  double low, high;
  double magnitude;  // factor of cos and sin
};
inline YarnRamp RampOf(const YarnRopeScaling& yarn, double base, int64_t half) {
  const auto pair = [&](double turns) {
    return double(half) * std::log(double(yarn.original_context) / (2 * M_PI * turns)) /
           std::log(base);
  };
  double low = pair(yarn.beta_fast), high = pair(yarn.beta_slow);
  if (yarn.whole_pairs) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, double(2 * half - 1));
  const bool given = yarn.magnitude > 0;
  return {.low = low,
          .high = std::max(high, low + 1e-3),
          .magnitude = given ? yarn.magnitude : 0.1 * std::log(yarn.factor) + 1};
}

struct RopeArgs {
  ConstTensor x;     // [T, (a+g)d + g e]  f64 | f32 | bf16; heads in the order query, key, value
  ConstTensor cos;   // [S, r/2]      f32 (f64 when x is f64)
  ConstTensor sin;   // [S, r/2]      dtype of cos
  int64_t heads;     // a
  int64_t kv_heads;  // g
  int64_t head_dim;  // d >= r
  int64_t sequence;  // <= S; token t takes row t % sequence of the table
  Tensor y;          // [T, (a+g)d + g e]  out, dtype of x; may be x. Value heads are copied.
  bool inverse = false;
};

inline void Check(const RopeTableArgs& args) {
  const int64_t half = ExpectColumns("rope cos", args.cos);
  ExpectDType("rope cos", args.cos, {DType::kF64, DType::kF32});
  ExpectData("rope cos", args.cos);
  ExpectMatrix("rope sin", args.sin, args.cos.dtype, args.cos.shape.rows(), half);
  CHECK(args.base > 0) << "rope base: " << args.base;
  CHECK(args.part.valid() && args.part.rows == args.cos.shape.rows())
      << "rope part: rows " << args.part.rows << ", rank " << args.part.rank << " of "
      << args.part.ranks << " for a table of " << args.cos.shape.rows();
  if (args.yarn.factor == 0) return;
  CHECK(args.scaling.factor == 0) << "rope yarn: beside a scaling by " << args.scaling.factor;
  CHECK(args.yarn.factor >= 1 && args.base > 1)
      << "rope yarn: factor " << args.yarn.factor << ", base " << args.base;
  const bool apart = args.yarn.beta_fast > args.yarn.beta_slow ||
                     (args.yarn.whole_pairs && args.yarn.beta_fast == args.yarn.beta_slow);
  CHECK(apart && args.yarn.beta_slow > 0)
      << "rope yarn: betas " << args.yarn.beta_fast << ", " << args.yarn.beta_slow;
  CHECK(args.yarn.original_context > 0) << "rope yarn: context " << args.yarn.original_context;
}

inline void Check(const RopeArgs& args) {
  const int64_t half = ExpectColumns("rope cos", args.cos), rows = args.cos.shape.rows();
  const int64_t columns = ExpectColumns("rope x", args.x);
  ExpectFloat("rope x", args.x);
  CHECK(args.head_dim >= 2 * half)
      << "rope head_dim: " << args.head_dim << " with a table of " << half << " pairs";
  CHECK(columns >= (args.heads + args.kv_heads) * args.head_dim)
      << "rope x: " << args.x.dtype << ' ' << args.x.shape << " for " << args.heads << " query and "
      << args.kv_heads << " key heads of " << args.head_dim;
  ExpectMatrix("rope cos", args.cos, AccumulateOfDType(args.x.dtype), rows, half);
  ExpectMatrix("rope sin", args.sin, AccumulateOfDType(args.x.dtype), rows, half);
  CHECK(args.sequence > 0 && args.sequence <= rows)
      << "rope sequence: " << args.sequence << " with a table of " << rows << " positions";
  ExpectMatrix("rope y", args.y, args.x.dtype, args.x.shape.rows(), columns);
}

}  // namespace trainyard
