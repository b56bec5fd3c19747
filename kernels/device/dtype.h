// The scalar types of tensors, and bf16 on the CPU and, if nvcc compiles this file, on the GPU.
// Numbers of the narrow types e4m3 and e5m2 have scales (kernels/device/narrow.h).

#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <ostream>

#include "common/check.h"
#include "common/host_device.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#endif

namespace trainyard {

// u8 is for codes of a few bits each (kernels/device/nf4.h), with which nothing is computed.
enum class DType : uint8_t { kF64, kF32, kBF16, kI32, kI64, kE4M3, kE5M2, kI16, kU8 };

constexpr size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kI16:
      return 2;
    case DType::kE4M3:
    case DType::kE5M2:
    case DType::kU8:
      return 1;
  }
  return 0;
}

// The names in checkpoints, metrics and messages.
constexpr const char* Name(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "f64";
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
    case DType::kE4M3:
      return "e4m3";
    case DType::kE5M2:
      return "e5m2";
    case DType::kI16:
      return "i16";
    case DType::kU8:
      return "u8";
  }
  return "?";
}
inline std::ostream& operator<<(std::ostream& out, DType dtype) { return out << Name(dtype); }

// Brain floating point: the upper half of an f32, rounded to nearest even. NaN stays NaN.
struct bf16 {
  uint16_t bits = 0;

  bf16() = default;
  bf16(const bf16&) = default;
  // Copies the member: compilers vectorise this, but not the assignment of a whole struct.
  TRAINYARD_HOST_DEVICE bf16& operator=(const bf16& other) {
    bits = other.bits;
    return *this;
  }
  // Implicit, so that kernels templated on the scalar look alike.
  TRAINYARD_HOST_DEVICE bf16(float value) {
#ifdef __CUDA_ARCH__
    bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));  // One instruction.
#else
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = nan ? uint16_t((u >> 16) | 0x40) : uint16_t((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
#endif
  }
  TRAINYARD_HOST_DEVICE operator float() const {
    return std::bit_cast<float>(uint32_t{bits} << 16);
  }
};

// The type of statistics, losses and gradients for tensors of T.
template <typename T>
struct AccumulateOf {
  using type = float;
};
template <>
struct AccumulateOf<double> {
  using type = double;
};
template <typename T>
using Accumulate = typename AccumulateOf<T>::type;

constexpr DType AccumulateOfDType(DType dtype) {
  return dtype == DType::kF64 ? DType::kF64 : DType::kF32;
}

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<int16_t> {
  static constexpr DType value = DType::kI16;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kU8;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kI64;
};

// Calls f(T{}) with the floating-point type of `dtype`. Any other dtype is a programmer error.
template <typename F>
auto DispatchFloat(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF64:
      return f(double{});
    case DType::kF32:
      return f(float{});
    case DType::kBF16:
      return f(bf16{});
    default:
      break;
  }
  CHECK(false) << "no floating-point kernel for " << dtype;
  std::abort();
}

}  // namespace trainyard
