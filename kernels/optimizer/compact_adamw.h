// One AdamW step over a box of a parameter whose state takes 8 bytes for each element: a weight in
// bf16 with a remainder (split_master.h), and two moments in bf16. With the master that the two
// make up, t = state->step, lr = state->learning_rate and g = grad * state->clip_factor, in f32:
//
//   m' = beta1 m + (1 - beta1) g         v' = beta2 v + (1 - beta2) g^2
//   update = (m' / (1 - beta1^t)) / (sqrt(v' / (1 - beta2^t)) + eps)
//   master = master - lr (weight_decay * master + update)
//   weight, remainder = split master
//   m = m', v = v', rounded up or down at random
//
// A moment is rounded up with the probability that is its distance from the lower neighbour, so
// that on average no part of a gradient is lost, however small it is beside the moment. The random
// bits are a function of the job's seed, the parameter (`stream`), the step, and the element's
// number in the whole parameter, so they do not depend on the layout. A finite moment stays finite.
//
// Without a remainder `weight` is the master itself, in f32: for parameters that forward reads in
// f32.
//
// Adds the words of weight and remainder, m and v to state->read as they were before, and to
// state->written as they are afterwards, as in adamw.h. Changes nothing if state->finite == 0.
// Every operation is rounded as it is written in CompactUpdate, so all devices have the same bits
// if they have the same coefficients, and any thread count has. Letters: R rows and C columns of
// the box; leading dims count as rows. Source: as adamw.h; rounding at random: Gupta et al. 2015,
// arXiv:1502.02551, section 3.

#pragma once

#include <bit>
#include <cstdint>

#include "common/host_device.h"
#include "common/rng.h"
#include "kernels/device/expect.h"
#include "kernels/device/step_state.h"
#include "kernels/optimizer/adamw.h"
#include "kernels/optimizer/split_master.h"
#include "kernels/sums/sum_words.h"

namespace trainyard {

struct CompactAdamWArgs {
  Tensor weight;     // [R, C]  in/out, bf16; f32 without a remainder
  Tensor m;          // [R, C]  in/out, bf16
  Tensor v;          // [R, C]  in/out, bf16
  ConstTensor grad;  // [R, C]  f32
  AdamWOptions options;
  uint64_t stream;         // HashName() of the parameter's global name, for its moments
  int64_t global_columns;  // Of the whole parameter; >= first_column + C
  int64_t first_row;       // The place of the box in the whole parameter.
  int64_t first_column;
  StepState* state;       // device memory; `read` and `written` are added to
  Tensor remainder = {};  // [R, C]  in/out, i16; absent when its data is null
};

inline void Check(const CompactAdamWArgs& args) {
  const int64_t columns = ExpectColumns("compact_adamw weight", args.weight);
  const int64_t n = args.weight.elements();
  const bool split = args.remainder.data != nullptr;
  ExpectElements("compact_adamw weight", args.weight, split ? DType::kBF16 : DType::kF32, n);
  if (split) ExpectElements("compact_adamw remainder", args.remainder, DType::kI16, n);
  ExpectElements("compact_adamw m", args.m, DType::kBF16, n);
  ExpectElements("compact_adamw v", args.v, DType::kBF16, n);
  ExpectElements("compact_adamw grad", args.grad, DType::kF32, n);
  CHECK(args.first_row >= 0 && args.first_column >= 0 &&
        args.first_column + columns <= args.global_columns)
      << "compact_adamw global_columns: " << args.global_columns << ", box of " << columns
      << " columns from " << args.first_column;
  Check(args.options);
  CHECK(args.state != nullptr) << "compact_adamw state: none";
}

// The numbers that the elements of a box have in the whole parameter.
struct BoxNumbers {
  int64_t columns, global_columns;
  uint64_t first;

  explicit BoxNumbers(const CompactAdamWArgs& args)
      : columns(args.weight.shape.back()),
        global_columns(args.global_columns),
        first(uint64_t(args.first_row * global_columns + args.first_column)) {
    if (columns != global_columns) return;
    columns = global_columns = args.weight.elements();  // Whole rows are as one row.
  }
  TRAINYARD_HOST_DEVICE uint64_t of(int64_t element) const {
    return first + uint64_t(element / columns * global_columns + element % columns);
  }
};

// The key of a step's random bits.
TRAINYARD_HOST_DEVICE inline uint64_t KeyOf(uint64_t stream, const StepState& state) {
  return RandomBits(state.seed, stream, uint64_t(state.step));
}

// The bits of a bf16 that is x rounded up or down. The lower 16 bits of `random` decide.
TRAINYARD_HOST_DEVICE inline uint16_t RoundAtRandom(float x, uint32_t random) {
  constexpr uint32_t kInfinity = 0x7f800000u, kLargest = 0x7f7fffffu;
  const uint32_t u = std::bit_cast<uint32_t>(x), size = u & 0x7fffffffu;
  const uint32_t sum = size + (random & 0xffffu);
  const uint32_t finite = sum < kLargest ? sum : kLargest;
  const uint32_t special = size > kInfinity ? size | 0x400000u : size;  // NaN stays NaN.
  return uint16_t(((size < kInfinity ? finite : special) | (u & 0x80000000u)) >> 16);
}

// One element's update, before moments are rounded. Fused products and sums are said to be so: a
// compiler that fused others would change bits.
TRAINYARD_HOST_DEVICE inline AdamWElement<float> CompactUpdate(const AdamWElement<float>& old,
                                                               float grad,
                                                               const AdamWCoefficients<float>& k) {
  const float g = grad * k.clip;
  const float m = std::fma(k.beta1, old.m, k.fresh1 * g);
  const float v = std::fma(k.beta2, old.v, k.fresh2 * g * g);
  const float change = k.rate * m / std::fma(std::sqrt(v), k.root, k.eps);
  return {std::fma(k.keep, old.master, -change), m, v};
}

}  // namespace trainyard
