#include "kernels/products/matmul_gelu.h"

#include "kernels/cpu/kernels.h"
#include "kernels/elementwise/gelu.h"
#include "kernels/products/matmul.h"

namespace trainyard::cpu {

void MatMulGeluForward(Exec& exec, const MatMulGeluForwardArgs& args) {
  MatMul(exec, {.a = args.x, .b = args.w, .c = args.product, .bias = args.bias, .trans_b = true});
  GeluForward(exec, {.x = args.product, .y = args.y});
}

void MatMulGeluBackward(Exec& exec, const MatMulGeluBackwardArgs& args) {
  MatMul(exec, {.a = args.dy, .b = args.w, .c = args.dx});
  GeluBackward(exec, {.dy = args.dx, .x = args.x, .dx = args.dx});
}

}  // namespace trainyard::cpu
