#include "models/hf/finite.h"

#include <algorithm>
#include <cstring>

namespace trainyard {
namespace {

// A number is not finite if all bits of its exponent are set.
template <typename Bits>
int64_t FirstWithAll(Bits exponent, const void* values, int64_t count) {
  constexpr int64_t kBlock = 4096;  // Of numbers that are looked at together.
  const char* const bytes = static_cast<const char*>(values);
  const auto is_set = [&](int64_t i) {
    Bits bits;
    std::memcpy(&bits, bytes + size_t(i) * sizeof(bits), sizeof(bits));
    return (bits & exponent) == exponent;
  };
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, count);
    bool any = false;
    for (int64_t i = begin; i < end; ++i) any |= is_set(i);
    if (!any) continue;
    for (int64_t i = begin; i < end; ++i) {
      if (is_set(i)) return i;
    }
  }
  return count;
}

}  // namespace

int64_t FirstNotFinite(const void* values, int64_t count, DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return FirstWithAll<uint64_t>(0x7ff0'0000'0000'0000, values, count);
    case DType::kBF16:
      return FirstWithAll<uint16_t>(0x7f80, values, count);
    default:
      return FirstWithAll<uint32_t>(0x7f80'0000, values, count);
  }
}

}  // namespace trainyard
