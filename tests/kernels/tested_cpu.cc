#include "tests/kernels/call.h"

namespace trainyard::testing {

const Backend& TestedBackend() { return CpuBackend(); }

}  // namespace trainyard::testing
