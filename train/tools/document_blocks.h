// Reads corpora in blocks of whole documents, so that threads can encode blocks apart from each
// other.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/roots.h"

namespace trainyard {

enum class DocumentSplit {
  kParagraph,  // A document ends after blank lines.
  kFile,       // A whole file is one document.
  kLine,       // Each line is one, without its end. Blank lines are none.
  kJsonLines,  // Each line is an object of JSON, which has the text in a field.
  kChat,       // Each line is a chat (train/chat/conversation.h).
};

struct CorpusInput {
  std::string path = {};
  DocumentSplit split = DocumentSplit::kParagraph;
};
// Returns kJsonLines for a name that ends in .jsonl, and kParagraph for any other.
DocumentSplit SplitOfName(absl::string_view path);

// A place between two documents.
struct CorpusPosition {
  int64_t input = 0;   // Index of the file.
  int64_t offset = 0;  // In its bytes.
  int64_t line = 1;    // The number of the line that begins there.
};

struct DocumentBlock {
  std::string bytes = {};
  CorpusInput input = {};
  int64_t first_line = 1;   // The number of its first line.
  CorpusPosition end = {};  // Where the next block begins.
};

// Not thread-safe.
class DocumentBlockReader {
 public:
  // Begins at `from`. OUT_OF_RANGE: the input is shorter than that.
  DocumentBlockReader(std::vector<CorpusInput> inputs, CorpusPosition from, size_t block_bytes);

  // Returns nothing after the last block. A block has about block_bytes, or one document that is
  // longer. Errors name the path. OUT_OF_RANGE: a document of 2 GiB or more.
  absl::StatusOr<std::optional<DocumentBlock>> Next();

 private:
  absl::Status Fill();  // Reads until `pending_` has a block, or the file ends.

  const std::vector<CorpusInput> inputs_;
  const size_t block_bytes_;
  CorpusPosition at_;  // Where `pending_` begins.
  std::optional<InputFile> file_;
  std::string pending_;
};

// Cuts the bytes of a block into documents. kJsonLines and kChat: the lines, not their texts. The
// parts are views of `bytes`; each has the number of its line within the block, from 0 on.
struct DocumentPart {
  absl::string_view bytes;
  int64_t line = 0;
};
std::vector<DocumentPart> CutDocuments(absl::string_view bytes, DocumentSplit split);

}  // namespace trainyard
