// The base of all sources of tokens. A sample is sequence + 1 tokens: the inputs are the first
// `sequence` of them, and the targets are the last `sequence`.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "train/data/dataset.h"

namespace trainyard {

class TokenDataset : public Dataset {
 public:
  // Tokens are below `vocab`. `documents`: the samples also have the input kDocumentBegins.
  TokenDataset(int64_t sequence, int64_t vocab, bool documents = false);

  const std::vector<InputSpec>& inputs() const final { return inputs_; }
  absl::Status Read(const SampleId& sample, std::span<InputData> out) const final;

  // Writes the tokens of one sample; out.size() == sequence() + 1. The epoch does not matter.
  virtual absl::Status ReadTokens(int64_t index, std::span<int32_t> out) const = 0;
  // For each input token of one sample, writes the position in the sample at which the token's
  // document begins: 0 if it begins before the sample. out.size() == sequence(). Only called if the
  // samples have the input; the default writes one document.
  virtual absl::Status ReadDocumentBegins(int64_t index, std::span<int32_t> out) const;
  int64_t sequence() const { return sequence_; }

 private:
  const int64_t sequence_;
  std::vector<InputSpec> inputs_;
};

}  // namespace trainyard
