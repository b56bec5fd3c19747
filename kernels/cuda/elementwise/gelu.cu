#include "kernels/cuda/elementwise/activation.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/math.h"
#include "kernels/elementwise/gelu.h"

namespace trainyard::cuda {
namespace {

struct GeluUnit {
  template <typename A>
  __device__ static A Value(A x) {
    return x * GeluGate(x);
  }
  template <typename A>
  __device__ static A Backward(A d, A x) {
    return d * GeluDerivative(x, GeluGate(x));
  }
};

}  // namespace

void GeluForward(Exec& exec, const GeluForwardArgs& args) {
  ActivationForward<GeluUnit>(exec, args);
}

void GeluBackward(Exec& exec, const GeluBackwardArgs& args) {
  ActivationBackward<GeluUnit>(exec, args);
}

}  // namespace trainyard::cuda
