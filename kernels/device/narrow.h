// The 8-bit floating-point types e4m3 and e5m2, and how matrices of them share scales.
//
// Rounding is to nearest even. A finite number beyond the largest becomes the largest. Infinity
// stays infinity in e5m2 and becomes NaN in e4m3, which has no infinity: so a number that is not
// finite remains visible. Source: OCP 8-bit Floating Point Specification (OFP8) 1.0, whose
// saturating mode this is for finite numbers, and whose other mode for infinite ones.

#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "common/check.h"
#include "common/host_device.h"
#include "kernels/device/dtype.h"
#include "kernels/device/tensor.h"

namespace trainyard {

// A sign, `kExponent` bits of exponent and `kFraction` bits of fraction.
struct E4M3 {
  static constexpr DType kDType = DType::kE4M3;
  static constexpr int kFraction = 3;
  static constexpr int kBias = 7;
  static constexpr float kLargest = 448;
  static constexpr uint8_t kInfinity = 0x7f;  // It has none: NaN.
  static constexpr uint8_t kNaN = 0x7f;
};
struct E5M2 {
  static constexpr DType kDType = DType::kE5M2;
  static constexpr int kFraction = 2;
  static constexpr int kBias = 15;
  static constexpr float kLargest = 57344;
  static constexpr uint8_t kInfinity = 0x7c;
  static constexpr uint8_t kNaN = 0x7f;
};

constexpr bool IsNarrow(DType dtype) { return dtype == DType::kE4M3 || dtype == DType::kE5M2; }

// Calls f(Format{}) with the format of a narrow dtype. Any other dtype is a programmer error.
template <typename F>
auto DispatchNarrow(DType dtype, F&& f) {
  CHECK(IsNarrow(dtype)) << "no 8-bit floating-point format is " << dtype;
  return dtype == DType::kE4M3 ? f(E4M3{}) : f(E5M2{});
}

// The bits of `x`, rounded. T is float or double; bf16 is exact in float.
template <typename Format, typename T>
TRAINYARD_HOST_DEVICE inline uint8_t RoundTo(T x) {
  using Bits = std::conditional_t<std::is_same_v<T, double>, uint64_t, uint32_t>;
  constexpr int kSize = 8 * sizeof(T), kFraction = std::is_same_v<T, double> ? 52 : 23;
  constexpr Bits kBias = (Bits{1} << (kSize - kFraction - 2)) - 1;
  constexpr Bits kInfinite = (2 * kBias + 1) << kFraction;
  constexpr Bits kLeastExponent = kBias + 1 - Format::kBias;  // Of numbers that are not subnormal.
  const Bits all = std::bit_cast<Bits>(x), size = all & ~(Bits{1} << (kSize - 1));
  const auto sign = uint8_t(all >> (kSize - 8) & 0x80);
  const T least = std::min(std::bit_cast<T>(size), T(Format::kLargest));
  const Bits exponent = std::max(std::bit_cast<Bits>(least) >> kFraction, kLeastExponent);
  // Adding a number whose last bit is worth one unit of the narrow format rounds to that unit.
  const T unit = std::bit_cast<T>((exponent + kFraction - Format::kFraction) << kFraction);
  const T rounded = (least + unit) - unit;
  const Bits bits = std::bit_cast<Bits>(rounded);
  const bool subnormal = bits >> kFraction < kLeastExponent;
  constexpr T kUnits =
      std::bit_cast<T>((kBias + Format::kBias - 1 + Format::kFraction) << kFraction);
  const uint8_t magnitude = subnormal ? uint8_t(rounded * kUnits)
                                      : uint8_t((bits >> (kFraction - Format::kFraction)) -
                                                ((kBias - Format::kBias) << Format::kFraction));
  return sign | (size > kInfinite    ? Format::kNaN
                 : size == kInfinite ? Format::kInfinity
                                     : magnitude);
}

template <typename Format>
TRAINYARD_HOST_DEVICE inline float ToFloat(uint8_t bits) {
  constexpr int kFraction = Format::kFraction;
  const uint32_t size = bits & 0x7f, sign = uint32_t{bits} >> 7 << 31;
  const bool special =
      Format::kInfinity == Format::kNaN ? size == Format::kNaN : size >= Format::kInfinity;
  uint32_t result;
  if (special) {
    result = size == Format::kInfinity && size != Format::kNaN ? 0x7f800000u : 0x7fc00000u;
  } else if (size >> kFraction == 0) {  // Subnormal.
    constexpr float kUnit =
        std::bit_cast<float>(uint32_t(127 + 1 - Format::kBias - kFraction) << 23);
    result = std::bit_cast<uint32_t>(float(size) * kUnit);
  } else {
    result = (size << (23 - kFraction)) + (uint32_t(127 - Format::kBias) << 23);
  }
  return std::bit_cast<float>(result | sign);
}

// By bits.
template <typename Format>
std::array<float, 256> AllNumbers() {
  std::array<float, 256> numbers = {};
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = ToFloat<Format>(uint8_t(i));
  return numbers;
}

// How the numbers of a matrix [R, C] share scales: a block of `rows` x `columns` has one scale.
// Blocks begin at the first row and column, and the last ones may be smaller. 0: all of them. The
// number at (r, c) is its value in the 8-bit type times scales[r / rows, c / columns].
//
//   {0, 0}  one scale        {1, 0}  a scale for each row        {1, 128}  for 128 columns of a row
struct ScaleBlock {
  int64_t rows = 0;
  int64_t columns = 0;

  // The block with its real size in a matrix of this shape, whose leading dims count as rows.
  ScaleBlock In(const Shape& shape) const {
    return {.rows = rows == 0 ? shape.rows() : rows,
            .columns = columns == 0 ? shape.back() : columns};
  }
  // The shape of the scales of a matrix.
  Shape ScalesOf(const Shape& shape) const {
    const ScaleBlock block = In(shape);
    return {(shape.rows() + block.rows - 1) / block.rows,
            (shape.back() + block.columns - 1) / block.columns};
  }
  bool operator==(const ScaleBlock&) const = default;
};

}  // namespace trainyard
