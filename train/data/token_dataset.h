// What all sources of tokens share: a sample is sequence + 1 tokens, of which the inputs are the
// first `sequence` and the targets the last.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "train/data/dataset.h"

namespace trainyard {

class TokenDataset : public Dataset {
 public:
  // Tokens are below `vocab`.
  TokenDataset(int64_t sequence, int64_t vocab);

  const std::vector<InputSpec>& inputs() const final { return inputs_; }
  absl::Status Read(const SampleId& sample, std::span<InputData> out) const final;

  // Writes the tokens of one sample; out.size() == sequence() + 1. The epoch does not matter.
  virtual absl::Status ReadTokens(int64_t index, std::span<int32_t> out) const = 0;
  int64_t sequence() const { return sequence_; }

 private:
  const int64_t sequence_;
  const std::vector<InputSpec> inputs_;
};

}  // namespace trainyard
