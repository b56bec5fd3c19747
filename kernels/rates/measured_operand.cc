#include "kernels/rates/measured_operand.h"

#include "common/status_macros.h"
#include "kernels/elementwise/fill.h"
#include "kernels/elementwise/random_values.h"

namespace trainyard {

absl::Status FillMeasuredOperand(const Backend& backend, Exec& exec, const Tensor& tensor,
                                 uint64_t stream) {
  if (backend.device() == DeviceKind::kCpu) {
    backend.kernel<FillArgs>()(exec, {.y = tensor, .value = 0.5});
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Buffer state, backend.Allocate(sizeof(StepState)));  // Zeroes: seed 0.
  backend.kernel<RandomValuesArgs>()(exec,
                                     {.y = tensor,
                                      .stream = stream,
                                      .scale = 0.5,
                                      .global_columns = tensor.shape.back(),
                                      .state = reinterpret_cast<const StepState*>(state.data())});
  backend.Synchronize(exec);
  return absl::OkStatus();
}

}  // namespace trainyard
