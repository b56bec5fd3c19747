// Reads models of SentencePiece: tokenizer.model of Llama 2, Mistral, Gemma and T5.

#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "train/tokenizer/tokenizer.h"

namespace trainyard {

// Reads the bytes of a model. The library SentencePiece encodes and decodes, so the ids are its
// own. Models that sentencepiece_bpe.h knows are encoded there, to the same ids. prefix() and
// suffix() are empty, because a model does not say whether <s> comes before a text. Decode cuts a
// text between two special tokens as SentencePiece does: each part without its first space.
// INVALID_ARGUMENT: these are not the bytes of a model.
absl::StatusOr<std::unique_ptr<Tokenizer>> ReadSentencePiece(absl::string_view bytes);

}  // namespace trainyard
