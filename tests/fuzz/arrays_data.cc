// Two .npy files: the first two bytes say how long the labels' is, the rest is the latents'.

#include <algorithm>
#include <string>
#include <vector>

#include "common/check.h"
#include "tests/fuzz/input.h"
#include "train/data/arrays.h"

namespace trainyard {
namespace {

constexpr int64_t kChannels = 2, kSide = 2, kWidth = kChannels * kSide * kSide, kSequence = 4,
                  kClasses = 10, kTimes = 1000;
constexpr int64_t kMostSamples = 16;  // That a run reads.

void CheckSample(const Dataset& dataset, int64_t index) {
  std::vector<InputData> inputs = {std::vector<float>(), std::vector<float>(),
                                   std::vector<int32_t>(), std::vector<int32_t>()};
  const absl::Status status = dataset.Read({.index = index}, inputs);
  if (!status.ok()) return fuzz::CheckRefusal(status);
  for (const size_t i : {0, 1}) {
    const auto& reals = std::get<std::vector<float>>(inputs[i]);
    CHECK(reals.size() == kWidth * kSequence) << reals.size();
  }
  const auto& time = std::get<std::vector<int32_t>>(inputs[2]);
  const auto& label = std::get<std::vector<int32_t>>(inputs[3]);
  CHECK(time.size() == 1 && time[0] >= 0 && time[0] < kTimes) << time[0];
  CHECK(label.size() == 1 && label[0] >= 0 && label[0] <= kClasses) << label[0];
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const size_t label_bytes = input.Byte() + (size_t(input.Byte()) << 8);
  const std::string labels = fuzz::FileOf("labels.npy", input.Bytes(label_bytes));
  const ArraysData source{.latents = fuzz::FileOf("latents.npy", input.Rest()),
                          .labels = labels,
                          .label_dropout = 0.5,
                          .validation_fraction = 0.4};
  constexpr auto kReal = InputSpec::Kind::kReal;
  constexpr auto kSample = InputSpec::Unit::kSample;
  const std::vector<InputSpec> inputs = {
      {.name = "patches", .kind = kReal, .shape = {kChannels, kSide, kSide}},
      {.name = "target", .kind = kReal, .shape = {kSide, kSide, kChannels}},
      {.name = "time", .unit = kSample, .limit = kTimes},
      {.name = "label", .unit = kSample, .limit = kClasses + 1}};
  const auto splits = OpenArrays(
      source,
      {.source = source, .inputs = inputs, .sequence = kSequence, .seed = 1, .roots = Roots()});
  if (!splits.ok()) {
    fuzz::CheckRefusal(splits.status());
    return 0;
  }
  for (const Dataset* dataset : {splits->train.get(), splits->validation.get()}) {
    const int64_t samples = dataset->num_samples();
    CHECK(samples > 0) << samples;
    for (int64_t i = 0; i < std::min(samples, kMostSamples); ++i) CheckSample(*dataset, i);
  }
  return 0;
}

}  // namespace trainyard
