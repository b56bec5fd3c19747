// Rows of real numbers, one for each token, that enter or leave a model. Inside the model, the
// tensor ranks divide the rows (sequence parallelism).

#pragma once

#include <string>

#include "models/program/recorder.h"

namespace trainyard {

// Reads the input `name`, which the model must declare by token, and returns this rank's rows
// [T, width].
Value ReadRows(Recorder& recorder, const std::string& name);

// Gathers the rows x [T, width] of all n tensor ranks, and keeps them [n T, width] as the output
// `name`.
void KeepRows(Recorder& recorder, const std::string& name, Value x);

}  // namespace trainyard
