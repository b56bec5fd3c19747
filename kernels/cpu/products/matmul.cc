#include "kernels/products/matmul.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/products/blocked_matmul.h"
#include "kernels/cpu/products/narrow_weight.h"
#ifdef TRAINYARD_WITH_DNNL
#include "kernels/cpu/products/dnnl_adapter.h"
#endif

namespace trainyard::cpu {

void MatMul(Exec& exec, const MatMulArgs& args) {
  if (IsNarrowWeight(args)) return NarrowWeightMatMul(exec, args);
#ifdef TRAINYARD_WITH_DNNL
  if (DnnlMatMul(exec, args)) return;
#endif
  BlockedMatMul(exec, args);
}

}  // namespace trainyard::cpu
