#include "common/crc32.h"

#include <zlib.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace trainyard {
namespace {

uint32_t OfZlib(uint32_t crc, const unsigned char* data, size_t bytes) {
  return uint32_t(::crc32_z(crc, data, bytes));
}

#if defined(__x86_64__)

#define TRAINYARD_CARRYLESS [[gnu::target("pclmul,sse2")]]

// Moves the bytes of `x` forward by the distance that `by` stands for, and adds `next`. The result
// has the same remainder.
TRAINYARD_CARRYLESS inline __m128i Fold(__m128i x, __m128i by, __m128i next) {
  return _mm_xor_si128(
      _mm_xor_si128(_mm_clmulepi64_si128(x, by, 0x00), _mm_clmulepi64_si128(x, by, 0x11)), next);
}

TRAINYARD_CARRYLESS inline __m128i Load(const unsigned char* data) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(data));
}

constexpr size_t kLane = 16;
constexpr size_t kStride = 4 * kLane;

// Returns the remainder of one lane: reduces it to 16 bytes, to 8, and then by Barrett's method.
TRAINYARD_CARRYLESS uint32_t Remainder(__m128i a, __m128i by_lane) {
  const __m128i low = _mm_set_epi32(0, 0, 0, -1), by_word = _mm_set_epi64x(0, 0x163cd6124);
  const __m128i polynomial_and_inverse = _mm_set_epi64x(0x1f7011641, 0x1db710641);
  a = _mm_xor_si128(_mm_srli_si128(a, 8), _mm_clmulepi64_si128(a, by_lane, 0x10));
  a = _mm_xor_si128(_mm_srli_si128(a, 4),
                    _mm_clmulepi64_si128(_mm_and_si128(a, low), by_word, 0x00));
  __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(a, low), polynomial_and_inverse, 0x10);
  quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low), polynomial_and_inverse, 0x00);
  return uint32_t(_mm_cvtsi128_si32(_mm_srli_si128(_mm_xor_si128(a, quotient), 4)));
}

// Source: V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
// Instruction", Intel, 2009. The constants are those of section 4 for zlib's polynomial, with
// reversed bits. All whole lanes are folded into one. zlib continues with the bytes after the last
// whole lane. `bytes` must be at least kLane.
TRAINYARD_CARRYLESS uint32_t ByMultiplying(uint32_t crc, const unsigned char* data, size_t bytes) {
  const __m128i by_stride = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
  const __m128i by_lane = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
  __m128i a = _mm_xor_si128(Load(data), _mm_cvtsi32_si128(int(~crc)));
  if (bytes < kStride) {
    data += kLane, bytes -= kLane;
  } else {
    __m128i b = Load(data + kLane), c = Load(data + 2 * kLane), d = Load(data + 3 * kLane);
    for (data += kStride, bytes -= kStride; bytes >= kStride; data += kStride, bytes -= kStride) {
      a = Fold(a, by_stride, Load(data));
      b = Fold(b, by_stride, Load(data + kLane));
      c = Fold(c, by_stride, Load(data + 2 * kLane));
      d = Fold(d, by_stride, Load(data + 3 * kLane));
    }
    a = Fold(Fold(Fold(a, by_lane, b), by_lane, c), by_lane, d);
  }
  for (; bytes >= kLane; data += kLane, bytes -= kLane) a = Fold(a, by_lane, Load(data));
  const uint32_t lanes = ~Remainder(a, by_lane);
  return bytes == 0 ? lanes : OfZlib(lanes, data, bytes);
}

#endif

}  // namespace

uint32_t Crc32(uint32_t crc, const void* data, size_t bytes) {
  const auto* begin = static_cast<const unsigned char*>(data);
#if defined(__x86_64__)
  static const bool multiplies = __builtin_cpu_supports("pclmul");
  if (multiplies && bytes >= kLane) return ByMultiplying(crc, begin, bytes);
#endif
  return OfZlib(crc, begin, bytes);
}

}  // namespace trainyard
