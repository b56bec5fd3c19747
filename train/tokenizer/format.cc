#include "train/tokenizer/format.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace trainyard {
namespace {

// "a, b or c"
std::string Alternatives(std::vector<std::string> names) {
  const std::string last = names.back();
  names.pop_back();
  return absl::StrCat(absl::StrJoin(names, ", "), " or ", last);
}

}  // namespace

std::span<const TokenizerFormat* const> TokenizerFormats() {
#define TRAINYARD_LIST_FORMAT(Name) &Name##Format(),
  static const TokenizerFormat* const kAll[] = {
      TRAINYARD_FOR_EACH_TOKENIZER_FORMAT(TRAINYARD_LIST_FORMAT)};
#undef TRAINYARD_LIST_FORMAT
  return kAll;
}

std::string TokenizerFormatNames() {
  std::vector<std::string> names;
  for (const TokenizerFormat* const format : TokenizerFormats()) names.push_back(format->name);
  return Alternatives(std::move(names));
}

std::string TokenizerFileNames() {
  std::vector<std::string> files;
  for (const TokenizerFormat* const format : TokenizerFormats()) {
    if (format->file != nullptr) files.push_back(format->file);
  }
  return Alternatives(std::move(files));
}

bool BeginsAsObject(absl::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != absl::string_view::npos && text[first] == '{';
}

}  // namespace trainyard
