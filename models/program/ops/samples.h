// Functions for the ops that read both rows of tokens and rows of samples.

#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/device/sample_rows.h"
#include "models/program/recorder.h"

namespace trainyard::ops {

// Returns which samples this rank's rows belong to. The tensor ranks divide the rows.
inline SampleRows SampleRowsOf(const Recorder& recorder) {
  const Program& program = recorder.program();
  const Mesh& mesh = recorder.mesh();
  const int64_t rows = program.tokens() / mesh.size(kTensorAxes);
  return {.first = mesh.coordinate(kTensorAxes) * rows, .per_sample = program.sequence_rows()};
}

inline std::string ToString(const SampleRows& rows) {
  return absl::StrCat("first_row=", rows.first, " rows=", rows.per_sample);
}

}  // namespace trainyard::ops
