// Adds up the words of a tensor, so that a change of any bit shows: state->words += the sum of
// WordSum(x[i]), modulo 2^32. The order of adding does not matter, so every backend has the same
// sum, for any thread count.

#pragma once

#include <bit>
#include <cstdint>

#include "common/host_device.h"
#include "kernels/device/expect.h"
#include "kernels/device/step_state.h"

namespace trainyard {

// The sum of a value's 32-bit words. The bits of a shorter value count as one word.
TRAINYARD_HOST_DEVICE inline uint32_t WordSum(float x) { return std::bit_cast<uint32_t>(x); }
TRAINYARD_HOST_DEVICE inline uint32_t WordSum(double x) {
  const uint64_t words = std::bit_cast<uint64_t>(x);
  return uint32_t(words) + uint32_t(words >> 32);
}
TRAINYARD_HOST_DEVICE inline uint32_t WordSum(bf16 x) { return x.bits; }
TRAINYARD_HOST_DEVICE inline uint32_t WordSum(int16_t x) { return uint16_t(x); }
TRAINYARD_HOST_DEVICE inline uint32_t WordSum(uint8_t x) { return x; }

struct SumWordsArgs {
  ConstTensor x;     // any shape, f64 | f32 | bf16 | i16 | u8
  StepState* state;  // device memory
};

// Calls f(T{}) with the type of a tensor's elements.
template <typename F>
void DispatchSummed(DType dtype, F&& f) {
  if (dtype == DType::kU8) return f(uint8_t{});
  dtype == DType::kI16 ? f(int16_t{}) : DispatchFloat(dtype, f);
}

inline void Check(const SumWordsArgs& args) {
  ExpectDType("sum_words x", args.x,
              {DType::kF64, DType::kF32, DType::kBF16, DType::kI16, DType::kU8});
  ExpectData("sum_words x", args.x);
  CHECK(args.state != nullptr) << "sum_words state: none";
}

}  // namespace trainyard
