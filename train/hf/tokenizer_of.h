// The tokenizer of a model that was imported, or trained from one that was.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "train/tokenizer/tokenizer.h"

namespace trainyard {

// Opens the tokenizer's file that the checkpoint keeps (carried_files.h). A model with a vocabulary
// of 256 that keeps none has bytes as tokens. Errors name the checkpoint or the file.
// INVALID_ARGUMENT: no tokenizer is known, the file is refused, or the model lacks some of its ids.
absl::StatusOr<std::unique_ptr<Tokenizer>> TokenizerOf(const std::string& checkpoint,
                                                       int64_t model_vocab);

}  // namespace trainyard
