#include "kernels/state_space/state_init.h"

#include "kernels/cpu/kernels.h"

namespace trainyard::cpu {

void StateInit(Exec&, const StateInitArgs& args) {
  DispatchFloat(args.y.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    T* const y = args.y.as<T>();
    for (int64_t i = 0; i < args.y.elements(); ++i) {
      y[i] = T(Accumulate<T>(InitialStateValue(args, i)));
    }
  });
}

}  // namespace trainyard::cpu
