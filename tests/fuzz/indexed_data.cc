// Megatron's indexed dataset: the first two bytes say how long PREFIX.idx is, the rest is
// PREFIX.bin.

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/strip.h"
#include "common/check.h"
#include "models/language_model.h"
#include "tests/fuzz/input.h"
#include "train/data/blend.h"
#include "train/data/dataset.h"
#include "train/data/indexed.h"

namespace trainyard {
namespace {

constexpr int64_t kSequence = 3;
constexpr int64_t kVocab = 300;
constexpr int64_t kMostSamples = 64;  // That a run reads of either end.

void CheckSample(const Dataset& dataset, int64_t index) {
  std::vector<InputData> inputs(dataset.inputs().size(), std::vector<int32_t>());
  const absl::Status status = dataset.Read({.index = index}, inputs);
  if (!status.ok()) return fuzz::CheckRefusal(status);
  if (inputs.size() == 3) {
    const auto begins = std::get<std::vector<int32_t>>(std::move(inputs.back()));
    inputs.pop_back();
    CHECK(begins.size() == kSequence && begins[0] == 0) << begins.size();
    for (size_t row = 1; row < begins.size(); ++row) {
      CHECK(begins[row] == begins[row - 1] || begins[row] == int32_t(row)) << begins[row];
    }
  }
  for (const InputData& input : inputs) {
    const auto& tokens = std::get<std::vector<int32_t>>(input);
    CHECK(tokens.size() == kSequence) << tokens.size();
    for (const int32_t token : tokens) CHECK(token >= 0 && token < kVocab) << token;
  }
}

void CheckSamples(const Dataset& dataset) {
  const int64_t samples = dataset.num_samples();
  CHECK(samples > 0) << samples;
  for (int64_t i = 0; i < std::min(samples, kMostSamples); ++i) {
    CheckSample(dataset, i);
    if (!dataset.is_shuffled()) CheckSample(dataset, samples - 1 - i);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const size_t index_bytes = input.Byte() + (size_t(input.Byte()) << 8);
  std::string prefix = fuzz::FileOf("data.idx", input.Bytes(index_bytes));
  prefix = std::string(absl::StripSuffix(prefix, ".idx"));
  fuzz::FileOf("data.bin", input.Rest());
  for (const double validation : {0.0, 0.3}) {
    const IndexedData source{
        .prefix = prefix, .validation_fraction = validation, .reset_attention_mask = true};
    const BlendData blend{.datasets = {{1, prefix, ""}, {2, prefix, ""}},
                          .validation_fraction = validation,
                          .reset_attention_mask = true};
    for (const DataConfig& data : {DataConfig(source), DataConfig(blend)}) {
      const auto splits = OpenData(
          {.source = data, .inputs = TokenInputs(kVocab), .sequence = kSequence, .roots = {}});
      if (!splits.ok()) {
        fuzz::CheckRefusal(splits.status());
        continue;
      }
      CheckSamples(*splits->train);
      if (splits->validation != nullptr) CheckSamples(*splits->validation);
    }
  }
  return 0;
}

}  // namespace trainyard
