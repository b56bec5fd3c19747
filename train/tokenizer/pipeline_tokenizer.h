// A tokenizer of the steps that tokenizer.json has: added tokens, normalizer, pre-tokenizer, byte
// pairs, decoder.

#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "train/tokenizer/added_tokens.h"
#include "train/tokenizer/bpe.h"
#include "train/tokenizer/decoder.h"
#include "train/tokenizer/normalizer.h"
#include "train/tokenizer/pre_tokenizer.h"
#include "train/tokenizer/tokenizer.h"
#include "train/tokenizer/vocabulary.h"

namespace trainyard {

struct PipelineParts {
  Vocabulary tokens;                 // By the texts of the file, added tokens among them.
  std::unique_ptr<const Bpe> bpe;    // Not null.
  std::vector<AddedToken> added;     // Whose ids `tokens` has.
  std::vector<AddedToken> verbatim;  // Looked for in the normalized text, as they are.
  std::vector<AddedToken> unseen;    // Special tokens that are not looked for in texts.
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  TokenDecoder decoder;
  std::vector<int32_t> prefix, suffix;  // Tokenizer::prefix() and suffix().
};

class PipelineTokenizer final : public Tokenizer {
 public:
  // RESOURCE_EXHAUSTED: an added token cannot be normalized.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(PipelineParts parts);

  std::unique_ptr<Encoder> NewEncoder() const override;
  absl::StatusOr<std::string> Decode(std::span<const int32_t> ids,
                                     Specials specials) const override;
  int64_t vocab() const override { return parts_.tokens.end(); }
  std::optional<int32_t> Find(absl::string_view token) const override {
    return parts_.tokens.Find(token);
  }

 private:
  friend class PipelineEncoder;
  explicit PipelineTokenizer(PipelineParts parts) : parts_(std::move(parts)) {}

  const PipelineParts parts_;
  AddedTokenFinder in_raw_text_, in_normalized_text_;
  std::set<int32_t> special_;
  // Added tokens that are other texts once they are normalized: these are decoded.
  std::map<int32_t, std::string> normalized_;
};

}  // namespace trainyard
