// Converts a text file to a Megatron indexed dataset with byte tokens. The joined documents are the
// text, byte for byte.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace trainyard {

enum class DocumentSplit {
  kParagraph,  // A document ends after blank lines.
  kFile,       // The whole file is one document.
};

struct TokenizedCorpus {
  int64_t documents = 0;
  int64_t tokens = 0;
};

// Writes PREFIX.bin and PREFIX.idx (uint16 tokens), and makes their directory. Errors name the
// path. INVALID_ARGUMENT: the text is empty, or the prefix has no name. FAILED_PRECONDITION: one of
// the files is there already.
absl::StatusOr<TokenizedCorpus> TokenizeBytes(const std::string& text_path,
                                              const std::string& prefix, DocumentSplit split);

}  // namespace trainyard
