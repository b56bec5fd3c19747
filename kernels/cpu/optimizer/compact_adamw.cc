#include "kernels/optimizer/compact_adamw.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/optimizer/update.h"

namespace trainyard::cpu {
namespace {

constexpr int64_t kRun = 1024;  // Elements whose random bits are made at once.

// T is bf16, or float without remainders.
template <typename T>
struct Range {
  T* weight;
  int16_t* remainder;
  bf16* m;
  bf16* v;
  const float* grad;
  int64_t elements;
};

// Updates a run of elements. All values that the loop reads are local, so that no store can change
// them. Only then does the compiler vectorise the loop with its sums.
template <typename T>
[[gnu::always_inline]] inline void UpdateRun(const Range<T> range, const uint32_t* random,
                                             const AdamWCoefficients<float> k, WordSums& read,
                                             WordSums& written) {
  constexpr bool kSplit = std::is_same_v<T, bf16>;
  T* const __restrict weights = range.weight;
  int16_t* const __restrict remainders = range.remainder;
  bf16* const __restrict m_data = range.m;
  bf16* const __restrict v_data = range.v;
  const float* const __restrict grad = range.grad;
  uint32_t old_masters = 0, old_ms = 0, old_vs = 0, masters = 0, ms = 0, vs = 0;
#pragma omp simd reduction(+ : old_masters, old_ms, old_vs, masters, ms, vs)
  for (int64_t i = 0; i < range.elements; ++i) {
    float old_master;
    old_masters += WordSum(weights[i]);
    if constexpr (kSplit) {
      old_master = Join(weights[i].bits, remainders[i]);
      old_masters += WordSum(remainders[i]);
    } else {
      old_master = weights[i];
    }
    old_ms += WordSum(m_data[i]), old_vs += WordSum(v_data[i]);
    const auto [master, m, v] = CompactUpdate({old_master, m_data[i], v_data[i]}, grad[i], k);
    const uint16_t m_bits = RoundAtRandom(m, random[i]);
    const uint16_t v_bits = RoundAtRandom(v, random[i] >> 16);
    m_data[i].bits = m_bits, v_data[i].bits = v_bits;
    if constexpr (kSplit) {
      const auto [weight, remainder] = Split(master);
      weights[i].bits = weight;
      remainders[i] = remainder;
      masters += weight + WordSum(remainder);
    } else {
      weights[i] = master;
      masters += WordSum(master);
    }
    ms += m_bits, vs += v_bits;
  }
  Add({old_masters, old_ms, old_vs}, read);
  Add({masters, ms, vs}, written);
}

template <typename T>
void Update(const Exec& exec, const CompactAdamWArgs& args) {
  int16_t* const remainders =
      args.remainder.data != nullptr ? args.remainder.as<int16_t>() : nullptr;
  const Range<T> all = {.weight = args.weight.as<T>(),
                        .remainder = remainders,
                        .m = args.m.as<bf16>(),
                        .v = args.v.as<bf16>(),
                        .grad = args.grad.as<float>(),
                        .elements = args.weight.elements()};
  Mutex mutex;  // Guards the sums in the state.
  ParallelElements(exec, all.elements,
                   [&, k = CoefficientsOf<float>(args.options, *args.state),
                    key = KeyOf(args.stream, *args.state),
                    numbers = BoxNumbers(args)](int64_t begin, int64_t end) {
                     uint32_t random[kRun];
                     WordSums read, written;
                     for (int64_t i = begin; i < end;) {
                       const int64_t row_end = (i / numbers.columns + 1) * numbers.columns;
                       const int64_t count = std::min({end - i, row_end - i, kRun});
                       const uint64_t first = numbers.of(i);
                       for (int64_t n = 0; n < count; ++n) {
                         random[n] = uint32_t(Mix(key ^ (first + uint64_t(n))));
                       }
                       UpdateRun<T>({.weight = all.weight + i,
                                     .remainder = remainders == nullptr ? nullptr : remainders + i,
                                     .m = all.m + i,
                                     .v = all.v + i,
                                     .grad = all.grad + i,
                                     .elements = count},
                                    random, k, read, written);
                       i += count;
                     }
                     const MutexLock lock(mutex);
                     Add(read, args.state->read);
                     Add(written, args.state->written);
                   });
}

}  // namespace

void CompactAdamW(Exec& exec, const CompactAdamWArgs& args) {
  if (args.state->finite == 0) return;
  args.remainder.data != nullptr ? Update<bf16>(exec, args) : Update<float>(exec, args);
}

}  // namespace trainyard::cpu
