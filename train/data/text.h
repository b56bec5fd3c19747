// Reads a text file. Each byte is a token, and the vocabulary is 256; or a tokenizer encodes the
// whole text at the start, so that its tokens are those of the text and not those of its lines.

#pragma once

#include <string>

#include "train/data/token_stream.h"

namespace trainyard {

struct TextData {
  std::string path;
  double validation_fraction = 0;   // Held out from the end of the file.
  std::string tokenizer_path = {};  // A file or a directory. Empty: the tokens are bytes.

  static const DataSource& Source() { return TextSource(); }
};

// The most that a tokenizer encodes; a larger text is for `trainyard-tokenize`. The tokens lie in
// the memory of each rank.
inline constexpr int64_t kMostEncodedBytes = int64_t{256} << 20;

// Opens a file of byte tokens. The last floor(validation_fraction * size) bytes are for validation.
// Errors name the file: those of Roots, and INVALID_ARGUMENT if a fraction above 0 holds out
// nothing.
absl::StatusOr<SplitStream> OpenText(const TextData& source, const Roots& roots);

}  // namespace trainyard
