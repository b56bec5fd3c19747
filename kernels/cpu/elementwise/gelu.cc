#include "kernels/elementwise/gelu.h"

#include "kernels/cpu/elementwise/activation.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/math.h"

namespace trainyard::cpu {
namespace {

struct GeluUnit {
  template <typename A>
  static A Value(A x) {
    return Gelu(x);
  }
  template <typename A>
  static A Backward(A d, A x) {
    return d * GeluDerivative(x);
  }
};

}  // namespace

void GeluForward(Exec& exec, const GeluForwardArgs& args) {
  ActivationForward<GeluUnit>(exec, args);
}

void GeluBackward(Exec& exec, const GeluBackwardArgs& args) {
  ActivationBackward<GeluUnit>(exec, args);
}

}  // namespace trainyard::cpu
