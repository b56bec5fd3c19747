// Rows of real numbers, one for each token, that enter or leave a model. Inside the model, the
// tensor ranks divide the rows (sequence parallelism).

#pragma once

#include <string>

#include "models/program/recorder.h"

namespace trainyard {

// Returns this rank's rows [T, width] of a declared input by token.
Value ReadRows(Recorder& recorder, const std::string& name);

// Keeps the rows of all tensor ranks [n T, width] as an output.
void KeepRows(Recorder& recorder, const std::string& name, Value x);

}  // namespace trainyard
