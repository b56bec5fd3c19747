#include "train/tools/document_blocks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

constexpr size_t kMostDocumentBytes = size_t{1} << 31;

bool IsBlank(absl::string_view line) {
  return line.find_first_not_of(" \t\r\n") == absl::string_view::npos;
}

// Returns the first line of a text that is not empty, with its end.
absl::string_view FirstLine(absl::string_view text) {
  const size_t end = text.find('\n');
  return text.substr(0, end == absl::string_view::npos ? end : end + 1);
}

// Returns where the last document ends that certainly is whole; 0: none is.
size_t WholeDocuments(absl::string_view bytes, DocumentSplit split) {
  if (split == DocumentSplit::kFile) return 0;
  const size_t last = bytes.rfind('\n');
  if (last == absl::string_view::npos) return 0;
  if (split != DocumentSplit::kParagraph) return last + 1;
  // A paragraph ends where a line that is not blank follows a blank one.
  size_t begin = last + 1;  // Of a line that is whole, or of the rest.
  bool next_has_text = false;
  while (begin > 0) {
    const size_t previous = begin == 1 ? absl::string_view::npos : bytes.rfind('\n', begin - 2);
    const size_t from = previous == absl::string_view::npos ? 0 : previous + 1;
    const bool blank = IsBlank(bytes.substr(from, begin - from));
    // Blank lines at the very start belong to the first paragraph.
    if (blank && next_has_text) return IsBlank(bytes.substr(0, begin)) ? 0 : begin;
    next_has_text = !blank;
    begin = from;
  }
  return 0;
}

}  // namespace

DocumentSplit SplitOfName(absl::string_view path) {
  return absl::EndsWith(path, ".jsonl") ? DocumentSplit::kJsonLines : DocumentSplit::kParagraph;
}

DocumentBlockReader::DocumentBlockReader(std::vector<CorpusInput> inputs, CorpusPosition from,
                                         size_t block_bytes)
    : inputs_(std::move(inputs)), block_bytes_(block_bytes), at_(from) {}

absl::Status DocumentBlockReader::Fill() {
  const uint64_t begin = uint64_t(at_.offset) + pending_.size();
  const uint64_t left = file_->size() - begin;
  const size_t had = pending_.size();
  // Twice as much each time that no document ends, so that looking for an end takes linear time.
  const uint64_t room = kMostDocumentBytes - std::min(had, kMostDocumentBytes);
  const size_t bytes = size_t(std::min({left, room, uint64_t(std::max(block_bytes_, had))}));
  if (bytes == 0 && left > 0) {
    return absl::OutOfRangeError(absl::StrCat(file_->path(), ":", at_.line,
                                              ": wanted documents of less than 2 GiB, found one "
                                              "that is longer"));
  }
  pending_.resize(had + bytes);
  return file_->ReadAt(begin, pending_.data() + had, bytes);
}

absl::StatusOr<std::optional<DocumentBlock>> DocumentBlockReader::Next() {
  for (;;) {
    if (at_.input == int64_t(inputs_.size())) return std::nullopt;
    const CorpusInput& input = inputs_[size_t(at_.input)];
    if (!file_) {
      ASSIGN_OR_RETURN(InputFile file, InputFile::Open(input.path));
      if (uint64_t(at_.offset) > file.size()) {
        return absl::OutOfRangeError(absl::StrCat(input.path, ": wanted at least ", at_.offset,
                                                  " bytes, found ", file.size(),
                                                  ": the file has changed"));
      }
      file_ = std::move(file);
    }
    RETURN_IF_ERROR(Fill());
    const bool ends = uint64_t(at_.offset) + pending_.size() == file_->size();
    const size_t whole = ends ? pending_.size() : WholeDocuments(pending_, input.split);
    if (whole == 0 && !ends) continue;
    DocumentBlock block{.bytes = pending_.substr(0, whole), .input = input, .first_line = at_.line};
    pending_.erase(0, whole);
    at_.offset += int64_t(whole);
    at_.line += std::count(block.bytes.begin(), block.bytes.end(), '\n');
    if (ends) {
      at_ = {at_.input + 1, 0, 1};
      file_.reset();
    }
    block.end = at_;
    if (!block.bytes.empty()) return block;
  }
}

std::vector<DocumentPart> CutDocuments(absl::string_view bytes, DocumentSplit split) {
  std::vector<DocumentPart> parts;
  if (split == DocumentSplit::kFile) {
    if (!bytes.empty()) parts.push_back({bytes, 0});
    return parts;
  }
  int64_t number = 0;
  bool after_blank = false, has_text = false;
  for (; !bytes.empty(); ++number) {
    const absl::string_view line = FirstLine(bytes);
    bytes.remove_prefix(line.size());
    const bool blank = IsBlank(line);
    if (split != DocumentSplit::kParagraph) {
      absl::string_view text = line;
      if (!text.empty() && text.back() == '\n') text.remove_suffix(1);
      if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
      if (!blank) parts.push_back({text, number});
      continue;
    }
    // Blank lines at the very start belong to the first paragraph.
    if (parts.empty() || (!blank && after_blank && has_text)) {
      parts.push_back({line, number});
      has_text = !blank;
    } else {
      absl::string_view& last = parts.back().bytes;
      last = absl::string_view(last.data(), last.size() + line.size());
      has_text |= !blank;
    }
    after_blank = blank;
  }
  return parts;
}

}  // namespace trainyard
