// A text file as byte tokens: one token a byte, vocabulary 256.

#pragma once

#include <string>

#include "train/data/dataset.h"

namespace trainyard {

// Validation is the last floor(fraction * size) bytes.
absl::StatusOr<DataSplits> OpenText(const TextData& source, int64_t sequence, const Roots& roots);

}  // namespace trainyard
