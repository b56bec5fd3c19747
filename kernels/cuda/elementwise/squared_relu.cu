#include "kernels/cuda/elementwise/activation.h"
#include "kernels/cuda/kernels.h"
#include "kernels/elementwise/squared_relu.h"

namespace trainyard::cuda {
namespace {

struct SquaredRelu {
  // A value that is no number stays none.
  template <typename A>
  __device__ static A Positive(A x) {
    return x < A(0) ? A(0) : x;
  }
  template <typename A>
  __device__ static A Value(A x) {
    return Positive(x) * Positive(x);
  }
  template <typename A>
  __device__ static A Backward(A d, A x) {
    return A(2) * d * Positive(x);
  }
};

}  // namespace

void SquaredReluForward(Exec& exec, const SquaredReluForwardArgs& args) {
  ActivationForward<SquaredRelu>(exec, args);
}

void SquaredReluBackward(Exec& exec, const SquaredReluBackwardArgs& args) {
  ActivationBackward<SquaredRelu>(exec, args);
}

}  // namespace trainyard::cuda
