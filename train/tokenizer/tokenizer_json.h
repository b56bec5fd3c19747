// Reads tokenizer.json, the format of Hugging Face's `tokenizers`.

#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "train/tokenizer/tokenizer.h"

namespace trainyard {

// Reads the text of the file. The ids of the tokenizer are those that `tokenizers` makes of the
// same file. INVALID_ARGUMENT names a field that is wrong, or that would change ids in a way that
// is not known here: a model other than BPE, dropout, truncation, padding, an expression.
absl::StatusOr<std::unique_ptr<Tokenizer>> ReadTokenizerJson(absl::string_view text);

}  // namespace trainyard
