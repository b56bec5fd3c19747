// Opens the small tokenizers of tests/golden/tokenizers.

#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "train/tokenizer/open_tokenizer.h"
#include "train/tokenizer/tiktoken.h"

namespace trainyard {

inline std::string GoldenTokenizers() {
  const char* const source = std::getenv("TRAINYARD_SOURCE");
  return absl::StrCat(source == nullptr ? "." : source, "/tests/golden/tokenizers");
}

// OpenTokenizer refuses the files of tiktoken, which have less ranks than the published ones.
inline absl::StatusOr<OpenedTokenizer> OpenGolden(const std::string& file) {
  const std::filesystem::path path = GoldenTokenizers() + "/" + file;
  if (path.extension() != ".tiktoken") return OpenTokenizer(path);
  OpenedTokenizer opened;
  ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  ASSIGN_OR_RETURN(opened.tokenizer, ReadTiktoken(bytes, path.stem().string(), TiktokenSize::kAny));
  return opened;
}

}  // namespace trainyard
