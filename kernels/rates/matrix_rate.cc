#include "kernels/rates/matrix_rate.h"

#include <algorithm>
#include <functional>

#include "common/clock.h"
#include "common/status_macros.h"
#include "kernels/products/matmul.h"
#include "kernels/rates/measured_operand.h"

namespace trainyard {
namespace {

absl::Duration Elapsed(const Clock& clock, const std::function<void()>& work) {
  const absl::Duration start = clock.Monotonic();
  work();
  return clock.Monotonic() - start;
}

// Enough products that a device's launches and the wait for them do not count. A CPU has neither.
int Repeats(const Backend& backend) { return backend.device() == DeviceKind::kCpu ? 1 : 8; }

// Returns the FLOP/s of products of side `n`: the best of those that fit in `budget`, at least two.
absl::StatusOr<double> Rate(const Backend& backend, Exec& exec, DType dtype, int64_t n,
                            absl::Duration budget) {
  const size_t bytes = size_t(n) * n * SizeOf(dtype);
  ASSIGN_OR_RETURN(const Buffer memory, backend.Allocate(3 * bytes));
  Tensor matrices[3];
  for (int i = 0; i < 3; ++i) {
    matrices[i] = Tensor{{memory.data() + i * bytes, dtype, {n, n}}};
    RETURN_IF_ERROR(FillMeasuredOperand(backend, exec, matrices[i], uint64_t(i)));
  }
  const MatMulArgs product = {.a = matrices[0], .b = matrices[1], .c = matrices[2]};
  const auto multiply = backend.kernel<MatMulArgs>();
  const int repeats = Repeats(backend);
  backend.Synchronize(exec);
  absl::Duration best = absl::InfiniteDuration(), spent;
  for (int i = 0; i < 2 || spent < budget; ++i) {
    const absl::Duration took = Elapsed(RealClock(), [&] {
      for (int repeat = 0; repeat < repeats; ++repeat) multiply(exec, product);
      backend.Synchronize(exec);
    });
    best = std::min(best, took);
    spent += took;
  }
  return repeats * SquareProductFlops(n) / absl::ToDoubleSeconds(best);
}

}  // namespace

absl::StatusOr<double> MeasureMatrixRate(const Backend& backend, DType dtype, int threads,
                                         absl::Duration budget) {
  Exec exec = backend.NewExec(threads);
  // The first products warm up, and show how large the others may be.
  ASSIGN_OR_RETURN(const double first, Rate(backend, exec, dtype, 512, absl::ZeroDuration()));
  int64_t n = 512;
  while (n < 4096 && 3 * SquareProductFlops(2 * n) < first * absl::ToDoubleSeconds(budget)) n *= 2;
  ASSIGN_OR_RETURN(const double rate, Rate(backend, exec, dtype, n, budget));
  return std::max(first, rate);
}

}  // namespace trainyard
