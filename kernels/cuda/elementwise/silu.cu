#include "kernels/cuda/elementwise/activation.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/math.h"
#include "kernels/elementwise/silu.h"

namespace trainyard::cuda {
namespace {

struct SiluUnit {
  template <typename A>
  __device__ static A Value(A x) {
    return x * Sigmoid(x);
  }
  template <typename A>
  __device__ static A Backward(A d, A x) {
    const A s = Sigmoid(x);
    return d * s * (A(1) + x * (A(1) - s));
  }
};

}  // namespace

void SiluForward(Exec& exec, const SiluForwardArgs& args) {
  ActivationForward<SiluUnit>(exec, args);
}

void SiluBackward(Exec& exec, const SiluBackwardArgs& args) {
  ActivationBackward<SiluUnit>(exec, args);
}

}  // namespace trainyard::cuda
