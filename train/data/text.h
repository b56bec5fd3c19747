// Reads a text file as byte tokens. Each byte is a token, and the vocabulary is 256.

#pragma once

#include <string>

#include "train/data/token_stream.h"

namespace trainyard {

struct TextData {  // Byte tokens: vocabulary 256.
  std::string path;
  double validation_fraction = 0;  // Held out from the end of the file.

  static const DataSource& Source() { return TextSource(); }
};

// Opens the file. The last floor(validation_fraction * size) bytes are for validation. Errors name
// the file: those of Roots, and INVALID_ARGUMENT if a fraction above 0 holds out nothing.
absl::StatusOr<SplitStream> OpenText(const TextData& source, const Roots& roots);

}  // namespace trainyard
