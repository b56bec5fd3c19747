#include "train/generate/inference_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/host_memory.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "models/arch/registry.h"
#include "models/model.h"
#include "train/checkpoint/load.h"
#include "train/config/validate_layout.h"
#include "train/generate/tokenizer_of.h"

namespace trainyard {
namespace {

constexpr int64_t kDefaultWindow = 256;  // For checkpoints without this number.

absl::Status Validate(const InferenceModel::Options& options, const ModelConfig& model) {
  // The checkpoint names its own model, and may come from anywhere.
  Violations violations;
  Validate(model, violations, "model");
  if (!violations.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.checkpoint, ": ", violations.ToStatus().message()));
  }
  const ModelFacts facts = FactsOf(model);
  if (facts.vocab == 0) {
    return absl::InvalidArgumentError(absl::StrCat(options.checkpoint,
                                                   ": wanted a model of text; found family ",
                                                   model.family(), ", which reads no text"));
  }
  if (options.window < 0 || options.window > facts.max_sequence) {
    return absl::InvalidArgumentError(absl::StrCat("window: wanted 1 to ", facts.max_sequence,
                                                   " tokens, found ", options.window));
  }
  CHECK(options.texts > 0 && options.texts <= InferenceModel::kMostTexts) << options.texts;
  if (options.gang == nullptr) return absl::OkStatus();
  return DividedOverTensorRanks(model, options.gang->size()).status();
}

// The tokens asked for, or as in training.
int64_t WindowOf(const InferenceModel::Options& options, const RunState& state) {
  if (options.window > 0) return options.window;
  return std::min(state.sequence > 0 ? state.sequence : kDefaultWindow,
                  FactsOf(state.model).max_sequence);
}

int64_t RanksOf(const InferenceModel::Options& options) {
  return options.gang == nullptr ? 1 : options.gang->size();
}

int64_t RoundUp(int64_t number, int64_t unit) { return (number + unit - 1) / unit * unit; }

// Of one rank. What is nobody's choice leaves half of the memory to other programs.
uint64_t MemoryOf(const InferenceModel::Options& options) {
  if (options.memory_bytes > 0) return options.memory_bytes;
  return AvailableMemoryBytes() / (options.fewer_texts ? 2 : 1) / uint64_t(RanksOf(options));
}

// Returns sizes.texts, or as many texts as fit into the memory of a rank. The ranks divide either.
absl::StatusOr<int64_t> FitTexts(const InferenceModel::Options& options,
                                 const Checkpoint& checkpoint, const PartSizes& sizes,
                                 uint64_t memory) {
  const auto bytes = [&](int64_t texts) -> absl::StatusOr<size_t> {
    PartSizes several = sizes;
    several.texts = texts;
    ASSIGN_OR_RETURN(const PartRecord record, RecordOf(checkpoint, several, options.gang));
    return PlanMemory(RecordInference(*CreateModel(record.model), record.options)).total_bytes();
  };
  const int64_t least = RanksOf(options);
  if (sizes.texts == least) return least;
  ASSIGN_OR_RETURN(const size_t all, bytes(sizes.texts));
  if (all <= memory) return sizes.texts;
  ASSIGN_OR_RETURN(const size_t some, bytes(least));
  const size_t each = (all - some) / size_t(sizes.texts - least);
  const int64_t further =
      memory > some ? int64_t((memory - some) / std::max<size_t>(1, each)) / least * least : 0;
  const int64_t most = least + further;
  if (options.fewer_texts) return most;
  return absl::FailedPreconditionError(absl::StrCat(
      "batch: wanted at most ", most, " texts at once for ", FormatBytes(double(memory)),
      " of memory", least == 1 ? "" : " of each rank", ", since the model takes ",
      FormatBytes(double(some)), " with ", least == 1 ? "one text" : absl::StrCat(least, " texts"),
      ", and ", FormatBytes(double(each)), " for each further one; found ", options.texts,
      "; a shorter --window takes less"));
}

// Returns the window as a number of tokens that the ranks divide. INVALID_ARGUMENT: the model has
// no such window.
absl::StatusOr<int64_t> DividedWindow(int64_t window, const InferenceModel::Options& options,
                                      const ModelConfig& model) {
  const int64_t most = FactsOf(model).max_sequence, ranks = RanksOf(options);
  const int64_t divided = RoundUp(window, ranks);
  if (divided <= most) return divided;
  return absl::InvalidArgumentError(absl::StrCat("window: wanted at most ", most / ranks * ranks,
                                                 " tokens, which ", ranks,
                                                 " tensor ranks divide, found ", window));
}

// What the model is recorded for, apart from the number of texts.
absl::StatusOr<PartSizes> SizesOf(const InferenceModel::Options& options, InferenceModel::Use use,
                                  const Checkpoint& checkpoint, const Backend& backend) {
  const int64_t window = WindowOf(options, checkpoint.state());
  const bool grows = use == InferenceModel::Use::kGrowing;
  PartSizes sizes = {.cache = grows ? window : 0};
  ASSIGN_OR_RETURN(sizes.sequence,
                   DividedWindow(grows ? std::min(window, GrowingTexts::kAtOnce) : window, options,
                                 checkpoint.state().model));
  sizes.narrow = grows && checkpoint.state().bf16_weights && backend.device() == DeviceKind::kCpu;
  return sizes;
}

}  // namespace

absl::StatusOr<InferenceModel> InferenceModel::Load(const Options& options, Use use,
                                                    const Backend& backend) {
  InferenceModel loaded;
  const auto load = [&](const Checkpoint& checkpoint) -> absl::Status {
    const ModelConfig& model = checkpoint.state().model;
    RETURN_IF_ERROR(Validate(options, model));
    ASSIGN_OR_RETURN(loaded.opened_, TokenizerOf(checkpoint.path(), FactsOf(model).vocab));
    loaded.checkpoint_ = checkpoint.path();
    loaded.vocab_ = size_t(FactsOf(model).vocab);
    loaded.window_ = WindowOf(options, checkpoint.state());
    ASSIGN_OR_RETURN(PartSizes sizes, SizesOf(options, use, checkpoint, backend));
    sizes.texts = RoundUp(options.texts, RanksOf(options));
    ASSIGN_OR_RETURN(const PartRecord record, RecordOf(checkpoint, sizes, options.gang));
    const bool gpu = backend.device() == DeviceKind::kCuda;
    if (gpu && record.options.precision.activation == DType::kF64) {
      return absl::InvalidArgumentError(
          absl::StrCat(options.checkpoint,
                       ": wanted weights in f32 or bf16 for a GPU, found f64; --device cpu"));
    }
    if (!gpu) {
      ASSIGN_OR_RETURN(sizes.texts, FitTexts(options, checkpoint, sizes, MemoryOf(options)));
    }
    ASSIGN_OR_RETURN(loaded.part_, ModelPart::Load(checkpoint, sizes, options.fewer_texts,
                                                   {.backend = backend, .threads = options.threads},
                                                   options.gang));
    return absl::OkStatus();
  };
  ASSIGN_OR_RETURN(const ChosenCheckpoint chosen, FindCheckpoint(options.checkpoint, load));
  for (const std::string& reason : chosen.refused) {
    LogWarning("checkpoint_refused", {{"reason", reason}});
  }
  const Program& program = loaded.part_->program();
  loaded.columns_ = size_t(loaded.part_->columns());
  if (program.cache == 0) return loaded;
  loaded.texts_ = size_t(std::min(options.texts, program.cached_texts));
  ModelPart* const part = loaded.part_.get();
  const auto replay = [part](int chunk, std::span<const NewToken> tokens) {
    part->Replay(chunk, tokens);
  };
  loaded.growing_.emplace(part->executable(), replay, int64_t(loaded.texts_));
  return loaded;
}

void InferenceModel::Run(std::span<const int32_t> tokens) {
  CHECK(!growing_ && !tokens.empty() && int64_t(tokens.size()) <= window_) << tokens.size();
  part_->Run(tokens);
  std::vector<int64_t> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), int64_t{0});
  part_->ReadLogits("logits", rows, logits_);
}

void InferenceModel::Read(std::span<const std::span<const int32_t>> texts) {
  after_.resize(texts_ * columns_);
  is_read_.assign(texts_, false);
  CHECK(growing_.has_value()) << "loaded to read whole windows";
  growing_->Read(texts, [&](const GrowingTexts::Rows& of) {
    std::vector<int64_t> rows;
    for (const auto& [place, row] : of.of_places) rows.push_back(row);
    part_->ReadLogits(of.output, rows, logits_);
    for (size_t i = 0; i < rows.size(); ++i) {
      const size_t place = of.of_places[i].first;
      std::copy_n(logits_.begin() + ptrdiff_t(i * columns_), columns_,
                  after_.begin() + ptrdiff_t(place * columns_));
      is_read_[place] = true;
    }
  });
}

std::span<const float> InferenceModel::After(size_t place) const {
  CHECK(is_read_[place]) << "place " << place;
  return {&after_[place * columns_], vocab_};
}

void InferenceModel::Forget(size_t place) {
  CHECK(growing_.has_value()) << "loaded to read whole windows";
  growing_->Forget(place);
}

std::span<const float> InferenceModel::Logits(size_t i) const {
  return {&logits_[i * columns_], vocab_};
}

double InferenceModel::Surprise(size_t i, int32_t id) const {
  const std::span<const float> logits = Logits(i);
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double(logit) - largest);
  return largest + std::log(sum) - double(logits[size_t(id)]);
}

}  // namespace trainyard
