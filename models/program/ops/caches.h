// What an inference program keeps of texts from one replay to the next (RecordOptions::cache).

#pragma once

#include "models/program/ops/ops.h"

namespace trainyard::ops {

// Returns the cache of the op of this name that is recorded next: of the shape, dtype and axes of
// `like`. The chunks of a program share caches.
Value CacheOf(Recorder& recorder, const char* op, const ValueInfo& like);

// CausalConv and StateScan in a program that keeps the last rows and the states of texts
// (kernels/state_space/kept_state.h).
Value KeptConv(Recorder& recorder, Value x, Value weight, Value bias);
Value KeptScan(Recorder& recorder, const StateScanInputs& inputs, const StateDims& dims);

}  // namespace trainyard::ops
