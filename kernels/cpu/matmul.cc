#include "kernels/matmul.h"

#include "kernels/cpu/blocked_matmul.h"
#include "kernels/cpu/kernels.h"
#ifdef TRAINYARD_WITH_DNNL
#include "kernels/cpu/dnnl_adapter.h"
#endif

namespace trainyard::cpu {

void MatMul(Exec& exec, const MatMulArgs& args) {
#ifdef TRAINYARD_WITH_DNNL
  if (DnnlMatMul(exec, args)) return;
#endif
  BlockedMatMul(exec, args);
}

}  // namespace trainyard::cpu
