// Calls the tested backend's kernel for an argument struct. The same tests run on each backend
// (CMakeLists.txt): their tensors lie in the host's memory, of which a GPU gets copies.

#pragma once

#include <algorithm>
#include <optional>

#include "absl/functional/function_ref.h"
#include "kernels/device/backend.h"
#include "tests/kernels/device_copies.h"
#include "tests/testing/numeric_grad.h"

namespace trainyard::testing {

const Backend& TestedBackend();  // tested_*.cc

// Under the thread sanitizer one: libgomp is not instrumented, so that every parallel loop would
// look like a race.
inline int Threads(int wanted) {
#ifdef __SANITIZE_THREAD__
  return std::min(wanted, 1);
#else
  return wanted;
#endif
}

// Calls `kernel` with `args`, and waits until it is done. A device with memory of its own works on
// copies of what `args` refer to.
template <typename Args>
void RunKernel(const Exec& exec, Args args, absl::FunctionRef<void(const Args&)> kernel) {
  std::optional<DeviceCopies> copies;
  if (TestedBackend().device() == DeviceKind::kCuda) copies.emplace(TestedBackend(), exec, args);
  kernel(args);
  TestedBackend().Synchronize(exec);
  if (copies.has_value()) copies->CopyBack();
}

template <typename Args>
void Call(Exec& exec, const Args& args) {
  Check(args);  // Only then do the shapes say how much memory can be copied.
  RunKernel<Args>(exec, args,
                  [&](const Args& given) { TestedBackend().kernel<Args>()(exec, given); });
}

// The gradient that a kernel computes is compared with derivatives of the CPU's values: a thousand
// calls on an emulated device take long, and other tests compare the device's values.
template <typename Args>
void Call(const Args& args, int threads = 2) {
  if (InDerivative()) {
    Check(args);
    Exec exec = CpuBackend().NewExec(Threads(threads));
    CpuBackend().kernel<Args>()(exec, args);
  } else {
    Exec exec = TestedBackend().NewExec(Threads(threads));
    Call(exec, args);
  }
}

}  // namespace trainyard::testing
