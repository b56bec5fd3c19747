#include "train/tokenizer/text_stream.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/utf8.h"

namespace trainyard {
namespace {

constexpr size_t kIdsOfContext = 4;
// Bytes of a character are at most four tokens. What still is none then never becomes one.
constexpr size_t kMostWaiting = 8;

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, std::vector<int32_t> before)
    : tokenizer_(tokenizer), ids_(std::move(before)), written_(ids_.size()) {}

absl::StatusOr<std::string> TextStream::New() const {
  const std::span<const int32_t> ids = ids_;
  ASSIGN_OR_RETURN(const std::string all, tokenizer_.Decode(ids, Specials::kKeep));
  ASSIGN_OR_RETURN(const std::string old, tokenizer_.Decode(ids.first(written_), Specials::kKeep));
  return all.substr(std::min(old.size(), all.size()));
}

absl::StatusOr<std::string> TextStream::Add(int32_t id) {
  ids_.push_back(id);
  ASSIGN_OR_RETURN(const std::string more, New());
  if (absl::EndsWith(more, kReplacement) && ids_.size() - written_ < kMostWaiting) return "";
  const size_t forgotten = written_ - std::min(written_, kIdsOfContext);
  ids_.erase(ids_.begin(), ids_.begin() + std::ptrdiff_t(forgotten));
  written_ = ids_.size();
  std::string complete;
  for (const char byte : more) absl::StrAppend(&complete, readable_.Add(byte));
  return complete;
}

absl::StatusOr<std::string> TextStream::End() {
  ASSIGN_OR_RETURN(const std::string more, New());
  written_ = ids_.size();
  std::string complete;
  for (const char byte : more) absl::StrAppend(&complete, readable_.Add(byte));
  return complete + readable_.End();
}

}  // namespace trainyard
