#include "train/data/token_dataset.h"

#include <algorithm>

#include "common/check.h"
#include "common/status_macros.h"
#include "models/language_model.h"

namespace trainyard {

TokenDataset::TokenDataset(int64_t sequence, int64_t vocab, bool documents)
    : sequence_(sequence), inputs_(TokenInputs(vocab)) {
  CHECK(sequence > 0 && vocab > 0) << sequence << ", " << vocab;
  if (documents) inputs_.push_back(DocumentBegins(sequence));
}

absl::Status TokenDataset::ReadDocumentBegins(int64_t /*index*/, std::span<int32_t> out) const {
  std::fill(out.begin(), out.end(), 0);
  return absl::OkStatus();
}

absl::Status TokenDataset::Read(const SampleId& sample, std::span<InputData> out) const {
  CHECK(out.size() == inputs_.size()) << out.size();
  CHECK(sample.index >= 0 && sample.index < num_samples())
      << sample.index << " of " << num_samples();
  std::vector<int32_t> tokens(size_t(sequence_) + 1);
  RETURN_IF_ERROR(ReadTokens(sample.index, tokens));
  auto& inputs = std::get<std::vector<int32_t>>(out[0]);
  auto& targets = std::get<std::vector<int32_t>>(out[1]);
  inputs.insert(inputs.end(), tokens.begin(), tokens.end() - 1);
  targets.insert(targets.end(), tokens.begin() + 1, tokens.end());
  if (out.size() == 2) return absl::OkStatus();
  auto& begins = std::get<std::vector<int32_t>>(out[2]);
  begins.resize(begins.size() + size_t(sequence_));
  return ReadDocumentBegins(sample.index, std::span(begins).last(size_t(sequence_)));
}

}  // namespace trainyard
