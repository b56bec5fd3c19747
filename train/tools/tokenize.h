// A text file to a Megatron indexed dataset with byte tokens. The documents joined are the text,
// byte for byte.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace trainyard {

enum class DocumentSplit {
  kParagraph,  // A document ends after blank lines: what follows the last of them is the next.
  kFile,       // All of it is one document.
};

struct TokenizedCorpus {
  int64_t documents = 0;
  int64_t tokens = 0;
};

// Writes PREFIX.bin and PREFIX.idx (uint16 tokens), and makes the directory they are in. Errors
// name the path; INVALID_ARGUMENT for an empty text, and for a prefix without a name.
absl::StatusOr<TokenizedCorpus> TokenizeBytes(const std::string& text_path,
                                              const std::string& prefix, DocumentSplit split);

}  // namespace trainyard
