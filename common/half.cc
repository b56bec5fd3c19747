#include "common/half.h"

#include <bit>
#include <cmath>
#include <limits>

namespace trainyard {

float HalfToFloat(uint16_t half) {
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  float size = 0;
  if (exponent == 31) {
    size = fraction == 0 ? std::numeric_limits<float>::infinity()
                         : std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    size = std::ldexp(float(fraction), -24);
  } else {
    size = std::ldexp(float(1024 + fraction), exponent - 25);
  }
  return half >> 15 != 0 ? -size : size;
}

uint16_t FloatToHalf(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return sign | 0x7e00;
  const float size = std::abs(value);
  if (size >= 65520.0f) return sign | 0x7c00;  // Half of the last step beyond 65504, and above.
  if (size < 0x1p-14f) return sign | uint16_t(std::nearbyint(std::ldexp(size, 24)));
  int exponent = 0;
  const float fraction = std::frexp(size, &exponent);  // 0.5 <= fraction < 1.
  // A carry out of the 10 bits goes into the exponent, as it should.
  const int bits = int(std::nearbyint(std::ldexp(fraction, 11)));
  return sign | uint16_t(((exponent + 13) << 10) + bits);
}

}  // namespace trainyard
