// What the ops of state spaces share.

#pragma once

#include <string>

#include "models/program/ops/ops.h"

namespace trainyard::ops {

std::string ToString(const StateDims& dims);

// The states with which this rank's parts of sequences begin: [M, H N P]. Context ranks divide the
// sequences.
Value StateStarts(Recorder& recorder, const StateScanInputs& inputs, const StateDims& dims);

}  // namespace trainyard::ops
