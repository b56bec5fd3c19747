#include "common/crc32.h"

#include <zlib.h>

#include <array>

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

// Bytes that have the same remainder as those of `x` with as many bytes behind them as `by`
// stands for, plus `next`.
TRAINYARD_CARRYLESS inline __m128i Fold(__m128i x, __m128i by, __m128i next) {
  return _mm_xor_si128(
      _mm_xor_si128(_mm_clmulepi64_si128(x, by, 0x00), _mm_clmulepi64_si128(x, by, 0x11)), next);
}

TRAINYARD_CARRYLESS inline __m128i Load(const unsigned char* data) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(data));
}

constexpr size_t kLane = 16;
constexpr size_t kStride = 4 * kLane;

// V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction",
// Intel, 2009; the constants are those of section 4 for zlib's polynomial, bits reversed. Whole
// lanes shrink to one, of which zlib takes the remainder. At least kStride bytes.
TRAINYARD_CARRYLESS uint32_t ByMultiplying(uint32_t crc, const unsigned char* data, size_t bytes) {
  const __m128i by_stride = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
  const __m128i by_lane = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
  __m128i a = _mm_xor_si128(Load(data), _mm_cvtsi32_si128(int(~crc)));
  __m128i b = Load(data + kLane), c = Load(data + 2 * kLane), d = Load(data + 3 * kLane);
  for (data += kStride, bytes -= kStride; bytes >= kStride; data += kStride, bytes -= kStride) {
    a = Fold(a, by_stride, Load(data));
    b = Fold(b, by_stride, Load(data + kLane));
    c = Fold(c, by_stride, Load(data + 2 * kLane));
    d = Fold(d, by_stride, Load(data + 3 * kLane));
  }
  a = Fold(Fold(Fold(a, by_lane, b), by_lane, c), by_lane, d);
  for (; bytes >= kLane; data += kLane, bytes -= kLane) a = Fold(a, by_lane, Load(data));
  std::array<unsigned char, kLane> last;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(last.data()), a);
  // What zlib inverts at the start is in `a` already.
  return OfZlib(OfZlib(~uint32_t{0}, last.data(), kLane), data, bytes);
}

#endif

}  // namespace

uint32_t Crc32(uint32_t crc, const void* data, size_t bytes) {
  const auto* begin = static_cast<const unsigned char*>(data);
#if defined(__x86_64__)
  static const bool multiplies = __builtin_cpu_supports("pclmul");
  if (multiplies && bytes >= kStride) return ByMultiplying(crc, begin, bytes);
#endif
  return OfZlib(crc, begin, bytes);
}

}  // namespace trainyard
