// What a run's checkpoints say of the texts that the model was trained on.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "train/chat/choose_format.h"
#include "train/tokenizer/open_tokenizer.h"

namespace trainyard {

// Opens the tokenizer that a spec has named for the chats on which the run was trained, if the file
// is still there. Otherwise that which the checkpoint keeps, because its model was imported, or
// trained from one that was (carried_files.h). A model with a vocabulary of 256 that has neither
// has bytes as tokens, and then the path is "". Errors name the checkpoint or the file.
// INVALID_ARGUMENT: no tokenizer is known, the file is refused, or the model lacks some of its ids.
absl::StatusOr<OpenedTokenizer> TokenizerOf(const std::string& checkpoint, int64_t model_vocab);

// Returns the choice of a format with which the run's chats were read. Its tokenizer is "" if that
// was the imported model's. Nullopt: the run was not
// trained on chats. Errors: those of ReadRecordedJob.
absl::StatusOr<std::optional<ChatFormatChoice>> ChatFormatOf(const std::string& checkpoint);

}  // namespace trainyard
