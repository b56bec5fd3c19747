// What a run's checkpoints say of the texts that the model was trained on.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "train/chat/choose_format.h"
#include "train/tokenizer/open_tokenizer.h"

namespace trainyard {

// Opens the tokenizer that the checkpoint keeps: that which a spec has named, for this run or for
// one from which it began, or that of an imported model (carried_files.h). Earlier releases kept
// none that a spec named: then it is opened where the spec has it, if it is still there. A model
// with a vocabulary of 256 and no tokenizer has bytes as tokens, and then the path is "". Errors
// name the checkpoint or the file.
// INVALID_ARGUMENT: no tokenizer is known, the file is refused, or the model lacks some of its ids.
absl::StatusOr<OpenedTokenizer> TokenizerOf(const std::string& checkpoint, int64_t model_vocab);

// Returns the choice of a format with which the run's chats were read. Its tokenizer is "" if that
// was the imported model's. Nullopt: the run was not
// trained on chats. Errors: those of ReadRecordedJob.
absl::StatusOr<std::optional<ChatFormatChoice>> ChatFormatOf(const std::string& checkpoint);

}  // namespace trainyard
