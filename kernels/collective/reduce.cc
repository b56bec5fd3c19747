#include "kernels/collective/reduce.h"

#include <algorithm>

#include "common/check.h"

namespace trainyard {
namespace {

// Elements are combined in blocks that stay in the cache while the parts of all ranks are read.
constexpr int64_t kBlock = 2048;

// T is the type of the parts, and A the type of the computation.
template <typename T, typename A, typename Combine>
void Reduce(std::span<const void* const> parts, int64_t elements, void* out, Combine combine) {
  A sum[kBlock];
  for (int64_t begin = 0; begin < elements; begin += kBlock) {
    const int64_t n = std::min(kBlock, elements - begin);
    const T* first = static_cast<const T*>(parts[0]) + begin;
    for (int64_t i = 0; i < n; ++i) sum[i] = A(first[i]);
    for (const void* part : parts.subspan(1)) {
      const T* next = static_cast<const T*>(part) + begin;
      for (int64_t i = 0; i < n; ++i) sum[i] = combine(sum[i], A(next[i]));
    }
    T* to = static_cast<T*>(out) + begin;
    for (int64_t i = 0; i < n; ++i) to[i] = T(sum[i]);
  }
}

}  // namespace

void SumInRankOrder(std::span<const void* const> parts, DType dtype, int64_t elements, void* out) {
  const auto add = [](auto a, auto b) { return a + b; };
  switch (dtype) {
    case DType::kF64:
      return Reduce<double, double>(parts, elements, out, add);
    case DType::kF32:
      return Reduce<float, float>(parts, elements, out, add);
    case DType::kBF16:
      return Reduce<bf16, float>(parts, elements, out, add);
    case DType::kI64:
      return Reduce<uint64_t, uint64_t>(parts, elements, out, add);
    default:
      break;
  }
  CHECK(false) << "no sum over ranks of " << dtype;
}

void MaxInRankOrder(std::span<const void* const> parts, DType dtype, int64_t elements, void* out) {
  const auto larger = [](auto a, auto b) { return std::max(a, b); };
  switch (dtype) {
    case DType::kF64:
      return Reduce<double, double>(parts, elements, out, larger);
    case DType::kF32:
      return Reduce<float, float>(parts, elements, out, larger);
    case DType::kI64:
      return Reduce<int64_t, int64_t>(parts, elements, out, larger);
    default:
      break;
  }
  CHECK(false) << "no maximum over ranks of " << dtype;
}

}  // namespace trainyard
