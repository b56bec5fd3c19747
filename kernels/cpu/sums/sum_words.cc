#include "kernels/sums/sum_words.h"

#include <atomic>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {

void SumWords(Exec& exec, const SumWordsArgs& args) {
  std::atomic<uint32_t> total = 0;
  DispatchSummed(args.x.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    const T* x = args.x.as<T>();
    ParallelRows(exec, args.x.elements(), 1, [&](int64_t begin, int64_t end) {
      uint32_t sum = 0;
      for (int64_t i = begin; i < end; ++i) sum += WordSum(x[i]);
      total += sum;
    });
  });
  args.state->words += total;
}

}  // namespace trainyard::cpu
