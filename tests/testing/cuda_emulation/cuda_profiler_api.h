// Found in place of CUDA's header: profiler.h has what was called.

#pragma once

#include "cuda_runtime.h"

cudaError_t cudaProfilerStart();
cudaError_t cudaProfilerStop();
