#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/state_space/state_init.h"

namespace trainyard::cuda {
namespace {

template <typename T>
struct InitBody {
  T* y;
  StateInitArgs args;

  __device__ void operator()(int64_t i) const {
    y[i] = T(Accumulate<T>(InitialStateValue(args, i)));
  }
};

}  // namespace

// Runs once, for a value for each head.
void StateInit(Exec& exec, const StateInitArgs& args) {
  DispatchFloat(args.y.dtype, [&](auto scalar) {
    using T = decltype(scalar);
    ForEach(exec, args.y.elements(), InitBody<T>{args.y.as<T>(), args});
  });
}

}  // namespace trainyard::cuda
