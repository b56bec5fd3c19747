#include "kernels/elementwise/silu.h"

#include "kernels/cpu/elementwise/activation.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/math.h"

namespace trainyard::cpu {
namespace {

struct SiluUnit {
  template <typename A>
  static A Value(A x) {
    return x * Sigmoid(x);
  }
  template <typename A>
  static A Backward(A d, A x) {
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

}  // namespace trainyard::cpu
