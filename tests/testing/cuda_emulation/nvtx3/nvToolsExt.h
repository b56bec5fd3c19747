// Found in place of the toolkit's header: tests/testing/cuda_emulation/profiler.h has what was
// called.

#pragma once

int nvtxRangePushA(const char* name);
int nvtxRangePop();
