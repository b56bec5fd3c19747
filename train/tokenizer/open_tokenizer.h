// Opens a tokenizer, whatever its format is.

#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/roots.h"
#include "train/tokenizer/tokenizer.h"

namespace trainyard {

struct OpenedTokenizer {
  std::unique_ptr<Tokenizer> tokenizer;
  std::string path;    // Of the file that was read.
  std::string digest;  // The SHA-256 of its bytes.
};

// Opens a file, or the first file in a directory that has the name of a format (format.h). The path
// and the bytes of the file say what its format is.
//
// Errors name the path: those of Roots, FAILED_PRECONDITION for a file of more than 256 MiB, and
// those of the reader.
absl::StatusOr<OpenedTokenizer> OpenTokenizer(const std::string& path,
                                              const Roots& roots = Roots());

// OK if a model with this vocabulary has all ids of the tokenizer. INVALID_ARGUMENT says how large
// the model's vocabulary must be.
absl::Status CheckVocabulary(const OpenedTokenizer& opened, int64_t model_vocab);

}  // namespace trainyard
