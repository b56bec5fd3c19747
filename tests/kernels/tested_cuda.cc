// The GPU, or its emulation, whichever is linked.

#include "kernels/cuda/cuda.h"
#include "tests/kernels/call.h"

namespace trainyard::testing {

const Backend& TestedBackend() {
  static const absl::StatusOr<const Backend*> backend = CudaBackend();
  CHECK(backend.ok()) << backend.status();
  return **backend;
}

}  // namespace trainyard::testing
