#include "train/tools/tokenize.h"

#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/roots.h"
#include "common/status_macros.h"
#include "train/data/indexed_writer.h"

namespace trainyard {
namespace {

// Collects lines until a document is complete.
class DocumentCollector {
 public:
  DocumentCollector(IndexedWriter& writer, DocumentSplit split) : writer_(writer), split_(split) {}

  absl::Status Add(const std::string& line_with_end) {
    const bool blank = line_with_end.find_first_not_of(" \t\r\n") == std::string::npos;
    if (split_ == DocumentSplit::kParagraph && !blank && after_blank_) RETURN_IF_ERROR(End());
    // Blank lines at the very start belong to the first paragraph.
    after_blank_ = blank && has_text_;
    has_text_ |= !blank;
    for (const char c : line_with_end) tokens_.push_back(uint8_t(c));
    return absl::OkStatus();
  }

  absl::Status End() {
    if (tokens_.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(writer_.AddDocument(tokens_));
    tokens_.clear();
    has_text_ = after_blank_ = false;
    return absl::OkStatus();
  }

 private:
  IndexedWriter& writer_;
  const DocumentSplit split_;
  std::vector<int32_t> tokens_;
  bool has_text_ = false;
  bool after_blank_ = false;
};

}  // namespace

absl::StatusOr<TokenizedCorpus> TokenizeBytes(const std::string& text_path,
                                              const std::string& prefix, DocumentSplit split) {
  // Opens the file for its error message: a stream says only that it could not open.
  RETURN_IF_ERROR(InputFile::Open(text_path).status());
  std::ifstream text(text_path, std::ios::binary);
  const std::filesystem::path out(prefix);
  if (out.filename().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("wanted where to write and a name, as data/corpus, found '", prefix, "'"));
  }
  for (const char* suffix : {".idx", ".bin"}) {
    const std::string old = prefix + suffix;
    if (!Exists(old)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(old,
                     ": wanted a prefix without files, found one; remove it first, or take "
                     "another prefix"));
  }
  if (out.has_parent_path()) RETURN_IF_ERROR(MakeDirectories(out.parent_path()));
  ASSIGN_OR_RETURN(const std::unique_ptr<IndexedWriter> writer,
                   IndexedWriter::Create(prefix, IndexDType::kUint16));
  DocumentCollector collector(*writer, split);
  std::string line;
  while (std::getline(text, line)) {
    if (!text.eof()) line += '\n';
    RETURN_IF_ERROR(collector.Add(line));
  }
  if (text.bad()) return absl::InternalError(absl::StrCat("cannot read ", text_path));
  RETURN_IF_ERROR(collector.End());
  if (writer->documents() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(text_path, " is empty"));
  }
  RETURN_IF_ERROR(writer->Finish());
  return TokenizedCorpus{writer->documents(), writer->tokens()};
}

}  // namespace trainyard
