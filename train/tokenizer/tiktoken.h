// Reads vocabularies as `tiktoken` and Mistral's `tekken` have them: bytes with ranks. Two symbols
// are joined if they are a token together, and the lowest rank comes first.

#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "train/tokenizer/tokenizer.h"

namespace trainyard {

enum class TiktokenSize {
  kPublished,
  kAny,  // Files of tests are small.
};

// Reads lines of base64 and a rank, which is the id. Such a file says neither how texts are cut nor
// which special tokens there are: `name` does, the file's own without .tiktoken. Known are
// r50k_base, gpt2, p50k_base, cl100k_base, o200k_base and qwen. Special tokens in a text are
// encoded as such (allowed_special="all" of `tiktoken`). INVALID_ARGUMENT names the line, or the
// names that are known, or says that the file is cut: it must have as many ranks as the published
// one.
absl::StatusOr<std::unique_ptr<Tokenizer>> ReadTiktoken(
    absl::string_view text, absl::string_view name, TiktokenSize size = TiktokenSize::kPublished);

// Whether the text of a JSON file is one of tekken.
bool IsTekken(absl::string_view text);

// Reads tekken.json. The text of a special token in a text is a text like others, as in
// `mistral-common`. INVALID_ARGUMENT names the field.
absl::StatusOr<std::unique_ptr<Tokenizer>> ReadTekken(absl::string_view text);

}  // namespace trainyard
