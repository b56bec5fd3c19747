#include "train/data/token_dataset.h"

#include "common/check.h"
#include "common/status_macros.h"
#include "models/language_model.h"

namespace trainyard {

TokenDataset::TokenDataset(int64_t sequence, int64_t vocab, DocumentOptions documents)
    : sequence_(sequence), documents_(documents), inputs_(TokenInputs(vocab)) {
  CHECK(sequence > 0 && vocab > 0) << sequence << ", " << vocab;
  if (documents.reset_attention_mask) inputs_.push_back(DocumentBegins(sequence));
}

absl::Status TokenDataset::Read(const SampleId& sample, std::span<InputData> out) const {
  CHECK(out.size() == inputs_.size()) << out.size();
  CHECK(sample.index >= 0 && sample.index < num_samples())
      << sample.index << " of " << num_samples();
  std::vector<int32_t> tokens(size_t(sequence_) + 1);
  std::vector<int32_t> begins(documents_.any() ? tokens.size() : 0);
  RETURN_IF_ERROR(ReadSample(sample.index, {.tokens = tokens, .document_begins = begins}));
  auto& inputs = std::get<std::vector<int32_t>>(out[0]);
  inputs.insert(inputs.end(), tokens.begin(), tokens.end() - 1);
  if (documents_.eod_mask_loss) {
    for (size_t t = 1; t < tokens.size(); ++t) {
      if (begins[t] == int32_t(t)) tokens[t] = kNotCounted;
    }
  }
  auto& targets = std::get<std::vector<int32_t>>(out[1]);
  targets.insert(targets.end(), tokens.begin() + 1, tokens.end());
  if (documents_.reset_attention_mask) {
    auto& of_inputs = std::get<std::vector<int32_t>>(out[2]);
    of_inputs.insert(of_inputs.end(), begins.begin(), begins.end() - 1);
  }
  return absl::OkStatus();
}

}  // namespace trainyard
