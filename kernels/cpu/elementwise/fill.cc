#include "kernels/elementwise/fill.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"

namespace trainyard::cpu {

void Fill(Exec& exec, const FillArgs& args) {
  DispatchFloat(args.y.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    T* y = args.y.as<T>();
    const T value = T(Accumulate<T>(args.value));
    ParallelElements(exec, args.y.elements(),
                     [=](int64_t begin, int64_t end) { std::fill(y + begin, y + end, value); });
  });
}

}  // namespace trainyard::cpu
