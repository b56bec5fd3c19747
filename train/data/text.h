// Reads a text file as byte tokens. Each byte is a token, and the vocabulary is 256.

#pragma once

#include <string>

#include "train/data/dataset.h"

namespace trainyard {

// Opens the file. The last floor(validation_fraction * size) bytes are for validation. Errors name
// the file: those of Roots, and INVALID_ARGUMENT if a split is too short.
absl::StatusOr<DataSplits> OpenText(const TextData& source, int64_t sequence, const Roots& roots);

}  // namespace trainyard
