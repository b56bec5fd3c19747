// The base of all sources of tokens. A sample is sequence + 1 tokens: the inputs are the first
// `sequence` of them, and the targets are the last `sequence`.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "train/data/dataset.h"

namespace trainyard {

// What the documents of a sample change. The names are those of a spec.
struct DocumentOptions {
  bool reset_attention_mask = false;  // Samples have the input kDocumentBegins.
  bool eod_mask_loss = false;  // The target behind the last token of a document is not counted.

  bool any() const { return reset_attention_mask || eod_mask_loss; }
};

// What a source delivers of one sample.
struct TokenSample {
  std::span<int32_t> tokens;  // [sequence + 1]
  // [sequence + 1]: for each token, the position in the sample at which the token's document
  // begins; 0 if it begins before the sample. Empty: not wanted.
  std::span<int32_t> document_begins = {};
};

class TokenDataset : public Dataset {
 public:
  // Tokens are below `vocab`.
  TokenDataset(int64_t sequence, int64_t vocab, DocumentOptions documents = {});

  const std::vector<InputSpec>& inputs() const final { return inputs_; }
  bool counts_all_targets() const final { return !documents_.eod_mask_loss; }
  absl::Status Read(const SampleId& sample, std::span<InputData> out) const final;

  // Writes all that is wanted of one sample. The epoch does not matter.
  virtual absl::Status ReadSample(int64_t index, const TokenSample& out) const = 0;
  int64_t sequence() const { return sequence_; }

 private:
  const int64_t sequence_;
  const DocumentOptions documents_;
  std::vector<InputSpec> inputs_;
};

}  // namespace trainyard
