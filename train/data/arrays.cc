#include "train/data/arrays.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/rng.h"
#include "common/status_macros.h"
#include "train/data/diffusion.h"
#include "train/data/npy.h"

namespace trainyard {
namespace {

// The sizes by which a latent is cut into tokens.
struct Patching {
  int64_t channels = 0;
  int64_t side = 0;   // Places along each side of the latent.
  int64_t patch = 0;  // Places along each side of a token.

  int64_t row_tokens() const { return side / patch; }
  int64_t token_elements() const { return channels * patch * patch; }
  int64_t elements() const { return channels * side * side; }
};

// The files and settings that both splits share.
struct Arrays {
  ArraysData source;
  NpyArray latents, labels;
  Patching patching;
  std::vector<InputSpec> inputs;
  NoiseSchedule schedule;
  int64_t no_label;
  uint64_t seed;
};

template <typename... Parts>
absl::Status Unfit(const NpyArray& array, const Parts&... what) {
  return absl::InvalidArgumentError(absl::StrCat(array.path(), ": wanted ", what..., ", found ",
                                                 array.type().descr, " [",
                                                 absl::StrJoin(array.shape(), ", "), "]"));
}

class ArraysDataset final : public Dataset {
 public:
  ArraysDataset(std::shared_ptr<const Arrays> arrays, int64_t first, int64_t num_samples,
                bool training)
      : arrays_(std::move(arrays)), first_(first), num_samples_(num_samples), training_(training) {}

  int64_t num_samples() const override { return num_samples_; }
  const std::vector<InputSpec>& inputs() const override { return arrays_->inputs; }

  absl::Status Read(const SampleId& sample, std::span<InputData> out) const override {
    CHECK(sample.index >= 0 && sample.index < num_samples_ && out.size() == inputs().size())
        << sample.index << " of " << num_samples_ << ", " << out.size();
    const int64_t at = first_ + sample.index;
    const uint64_t of_sample = RandomBits(arrays_->seed, HashName("data/arrays"), uint64_t(at));
    const uint64_t epoch = training_ ? uint64_t(sample.epoch) : 0;
    const uint64_t key = RandomBits(of_sample, HashName("data/epoch"), epoch);
    const int64_t time =
        int64_t(RandomBits(key, HashName("data/time"), 0) % uint64_t(arrays_->schedule.times()));
    RETURN_IF_ERROR(AppendTokens(at, key, arrays_->schedule.at(time),
                                 std::get<std::vector<float>>(out[0]),
                                 std::get<std::vector<float>>(out[1])));
    std::get<std::vector<int32_t>>(out[2]).push_back(int32_t(time));
    ASSIGN_OR_RETURN(const int32_t label, Label(at, key));
    std::get<std::vector<int32_t>>(out[3]).push_back(label);
    return absl::OkStatus();
  }

 private:
  absl::Status AppendTokens(int64_t at, uint64_t key, const NoiseSchedule::Share& share,
                            std::vector<float>& patches, std::vector<float>& target) const {
    const Patching& cut = arrays_->patching;
    std::vector<float> latent(size_t(cut.elements()));
    RETURN_IF_ERROR(arrays_->latents.Read(uint64_t(at) * latent.size(), latent));
    const bool velocity = arrays_->source.prediction_type == PredictionType::kVPrediction;
    const uint64_t noise = HashName("data/noise");
    const size_t begin = patches.size();
    patches.resize(begin + latent.size());
    target.resize(begin + latent.size());
    size_t i = 0;
    for (int64_t c = 0; c < cut.channels; ++c) {
      for (int64_t row = 0; row < cut.side; ++row) {
        for (int64_t column = 0; column < cut.side; ++column, ++i) {
          const double x0 = latent[i];
          if (!std::isfinite(x0)) {
            return absl::OutOfRangeError(absl::StrCat(arrays_->latents.path(), ": element [", at,
                                                      ", ", c, ", ", row, ", ", column, "] is ", x0,
                                                      ", wanted a finite number"));
          }
          const double eps = Normal(key, noise, i);
          const int64_t p = cut.patch, y = row % p, x = column % p;
          const int64_t token = row / p * cut.row_tokens() + column / p;
          const size_t base = begin + size_t(token * cut.token_elements());
          patches[base + size_t((c * p + y) * p + x)] = float(share.Noised(x0, eps));
          target[base + size_t((y * p + x) * cut.channels + c)] =
              float(velocity ? share.Velocity(x0, eps) : eps);
        }
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<int32_t> Label(int64_t at, uint64_t key) const {
    const double dropout = training_ ? arrays_->source.label_dropout : 0;
    if (Uniform(key, HashName("data/label_dropout"), 0) < dropout) {
      return int32_t(arrays_->no_label);
    }
    int64_t label = 0;
    RETURN_IF_ERROR(arrays_->labels.Read(uint64_t(at), std::span(&label, 1)));
    if (label < 0 || label >= arrays_->no_label) {
      return absl::DataLossError(
          absl::StrCat(arrays_->labels.path(), ": changed after it was opened"));
    }
    return int32_t(label);
  }

  const std::shared_ptr<const Arrays> arrays_;
  const int64_t first_;
  const int64_t num_samples_;
  const bool training_;
};

const InputSpec& Declared(const std::vector<InputSpec>& inputs, const char* name) {
  const InputSpec* const found = FindInput(inputs, name);
  CHECK(found != nullptr) << "the model does not read " << name;
  return *found;
}

// Returns how latents are cut into patches of shape `patch` = [C, p, p], with `sequence` patches in
// a latent. INVALID_ARGUMENT if the latents do not fit. The declared inputs do not say how a model
// arranges the patches of a latent; every model has a square grid.
absl::StatusOr<Patching> CutLatents(const NpyArray& latents, const Shape& patch, int64_t sequence) {
  const int64_t row_tokens = std::llround(std::sqrt(double(sequence)));
  const Patching cut{.channels = patch[0], .side = row_tokens * patch[1], .patch = patch[1]};
  const std::vector<int64_t>& shape = latents.shape();
  const std::vector<int64_t> wanted = {shape.empty() ? 0 : shape[0], cut.channels, cut.side,
                                       cut.side};
  if (shape != wanted || shape[0] == 0 || !latents.type().real ||
      row_tokens * row_tokens != sequence) {
    return Unfit(latents, "floating-point latents [N, ", cut.channels, ", ", cut.side, ", ",
                 cut.side, "], N > 0: batch.sequence = ", sequence, " patches of the model's ",
                 cut.channels, " x ", cut.patch, " x ", cut.patch);
  }
  return cut;
}

absl::Status CheckLabels(const NpyArray& labels, int64_t samples, int64_t classes) {
  if (labels.shape().size() != 1 || labels.type().real || labels.shape()[0] != samples) {
    return Unfit(labels, "as many integers as there are latents, [", samples, "]");
  }
  constexpr int64_t kChunk = 1 << 16;
  std::vector<int64_t> chunk;
  for (int64_t first = 0; first < samples; first += kChunk) {
    chunk.resize(size_t(std::min(kChunk, samples - first)));
    RETURN_IF_ERROR(labels.Read(uint64_t(first), chunk));
    for (size_t i = 0; i < chunk.size(); ++i) {
      if (chunk[i] >= 0 && chunk[i] < classes) continue;
      return absl::OutOfRangeError(absl::StrCat(labels.path(), ": label ", chunk[i], " of sample ",
                                                first + int64_t(i), ", wanted 0 to ", classes - 1,
                                                ", the model's classes"));
    }
  }
  return absl::OkStatus();
}

void VisitArrays(DataConfig& data, SourceVisit visit) {
  ArraysData& arrays = data.As<ArraysData>();
  visit({.name = "latents"}, &arrays.latents);
  visit({.name = "labels"}, &arrays.labels);
  PredictionType& type = arrays.prediction_type;
  visit({.name = "prediction_type"},
        Choice{.names = {"EPSILON", "V_PREDICTION"},
               .index = size_t(type),
               .set = [&](size_t index) { type = PredictionType(index); }});
  visit({.name = "label_dropout"}, &arrays.label_dropout);
  visit({.name = "validation_fraction"}, &arrays.validation_fraction);
}

SourceFacts ArraysFacts(const DataConfig& data) {
  constexpr auto kReal = InputSpec::Kind::kReal;
  constexpr auto kSample = InputSpec::Unit::kSample;
  return {.inputs = {{.input = {.name = "patches", .kind = kReal}, .rank = 3},
                     {.input = {.name = "target", .kind = kReal}, .rank = 3},
                     {.input = {.name = "time", .unit = kSample}},
                     {.input = {.name = "label", .unit = kSample}}},
          .validation_fraction = data.As<ArraysData>().validation_fraction};
}

absl::StatusOr<DataSplits> OpenArraysSamples(const DataConfig& data, const DataOptions& options) {
  return OpenArrays(data.As<ArraysData>(), options);
}

}  // namespace

const DataSource& ArraysSource() {
  static const DataSource kSource = {.name = "arrays",
                                     .example = "arrays: {latents: ..., labels: ...}",
                                     .make = [] { return DataConfig(ArraysData()); },
                                     .visit = VisitArrays,
                                     .facts = ArraysFacts,
                                     .open = OpenArraysSamples};
  return kSource;
}

absl::StatusOr<DataSplits> OpenArrays(const ArraysData& source, const DataOptions& options) {
  const InputSpec& patches = Declared(options.inputs, "patches");
  const InputSpec& target = Declared(options.inputs, "target");
  const InputSpec& time = Declared(options.inputs, "time");
  const InputSpec& label = Declared(options.inputs, "label");
  const int64_t classes = label.limit - 1;
  const int64_t c = patches.shape[0], p = patches.shape[1];
  CHECK(patches.shape == Shape({c, p, p}) && target.shape == Shape({p, p, c}) && time.limit > 0 &&
        classes > 0)
      << ToString(patches) << ", " << ToString(target) << ", " << time.limit << ", " << label.limit;
  ASSIGN_OR_RETURN(NpyArray latents, NpyArray::Open(source.latents, options.roots));
  ASSIGN_OR_RETURN(NpyArray labels, NpyArray::Open(source.labels, options.roots));
  ASSIGN_OR_RETURN(const Patching patching, CutLatents(latents, patches.shape, options.sequence));
  const int64_t samples = latents.shape()[0];
  RETURN_IF_ERROR(CheckLabels(labels, samples, classes));
  const int64_t held_out = int64_t(source.validation_fraction * double(samples));
  if (source.validation_fraction > 0 && held_out == 0) {
    return absl::InvalidArgumentError(absl::StrCat(latents.path(), ": validation_fraction ",
                                                   source.validation_fraction, " of ", samples,
                                                   " samples holds out nothing"));
  }
  const auto arrays =
      std::make_shared<const Arrays>(Arrays{.source = source,
                                            .latents = std::move(latents),
                                            .labels = std::move(labels),
                                            .patching = patching,
                                            .inputs = {patches, target, time, label},
                                            .schedule = NoiseSchedule(time.limit),
                                            .no_label = classes,
                                            .seed = options.seed});
  DataSplits splits;
  splits.train = std::make_unique<ArraysDataset>(arrays, 0, samples - held_out, /*training=*/true);
  if (held_out > 0) {
    splits.validation = std::make_unique<ArraysDataset>(arrays, samples - held_out, held_out,
                                                        /*training=*/false);
  }
  return splits;
}

}  // namespace trainyard
