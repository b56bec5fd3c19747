// The files of a tokenizer, as they are kept beside what was made with it: checkpoints
// (train/hf/carried_files.h) and corpora (train/tools/tokenize.h).

#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "common/roots.h"

namespace trainyard {

// Contents of files, by name.
using KeptFiles = std::map<std::string, std::string>;

// Returns the files to keep of the tokenizer at `path`, a file, or a directory in which the file
// has the name of a format: the vocabulary, by the name by which `transformers` knows its format
// (tokenizer.json, tekken.json, tokenizer.model, or NAME.tiktoken as it was), and what lies beside
// it for chats. Errors name a file that cannot be read.
absl::StatusOr<KeptFiles> TokenizerToKeep(const std::string& path, const Roots& roots = Roots());

// Returns the SHA-256 of the vocabulary among files that TokenizerToKeep has returned.
std::string VocabularySha256(const KeptFiles& files);

// Returns the path of the vocabulary in a directory with such files; "" if there is none.
std::string FindVocabulary(const std::string& directory);

}  // namespace trainyard
