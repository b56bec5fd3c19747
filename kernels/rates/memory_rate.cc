#include "kernels/rates/memory_rate.h"

#include <algorithm>

#include "common/clock.h"
#include "common/status_macros.h"
#include "kernels/elementwise/add.h"
#include "kernels/rates/measured_operand.h"

namespace trainyard {

absl::StatusOr<double> MeasureMemoryRate(const Backend& backend, int threads) {
  constexpr int64_t kElements = 16 << 20;
  // Enough sums that a device's launches and the wait for them do not count. A CPU has neither.
  const int repeats = backend.device() == DeviceKind::kCpu ? 1 : 4;
  Exec exec = backend.NewExec(threads);
  const size_t bytes = size_t(kElements) * SizeOf(DType::kF32);
  ASSIGN_OR_RETURN(const Buffer memory, backend.Allocate(3 * bytes));
  Tensor tensors[3];
  for (int i = 0; i < 3; ++i) {
    tensors[i] = Tensor{{memory.data() + i * bytes, DType::kF32, {kElements}}};
    RETURN_IF_ERROR(FillMeasuredOperand(backend, exec, tensors[i], uint64_t(i)));
  }
  backend.Synchronize(exec);
  absl::Duration best = absl::InfiniteDuration();
  for (int i = 0; i < 8; ++i) {
    const absl::Duration start = RealClock().Monotonic();
    for (int repeat = 0; repeat < repeats; ++repeat) {
      backend.kernel<AddArgs>()(exec, {.a = tensors[0], .b = tensors[1], .y = tensors[2]});
    }
    backend.Synchronize(exec);
    best = std::min(best, RealClock().Monotonic() - start);
  }
  return repeats * 3 * double(bytes) / absl::ToDoubleSeconds(best);
}

}  // namespace trainyard
