# Run at every build (cmake -P): writes OUTPUT only when the revision changed, so that nothing is rebuilt in vain.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --exclude=* OUTPUT_VARIABLE revision
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(revision unknown)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[
#include "common/build_info.h"

namespace trainyard {

const char* Version() { return "@VERSION@"; }
const char* Revision() { return "@revision@"; }
const char* CudaVersion() { return "@CUDA@"; }

}  // namespace trainyard
]] @ONLY)
