// What the ops of state spaces share.

#pragma once

#include <optional>
#include <string>

#include "kernels/state_space/state_scratch.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {

std::string ToString(const StateDims& dims);

// The states with which this rank's parts of sequences begin: [M, H N P]. Context ranks divide the
// sequences.
Value StateStarts(Recorder& recorder, const StateScanInputs& inputs, const StateDims& dims);

// The scratch memory on a GPU of an instance that reads xbc as this input.
std::optional<Op::Kept> KeptOf(StateCall call, const Program& program, Value xbc,
                               const StateDims& dims);

}  // namespace trainyard::ops
