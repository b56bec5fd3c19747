#include "train/generate/inference_model.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "models/arch/registry.h"
#include "models/model.h"
#include "train/checkpoint/adapter_of.h"
#include "train/checkpoint/load.h"
#include "train/generate/tokenizer_of.h"
#include "train/step/snapshot.h"

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
  return absl::OkStatus();
}

// The tokens asked for, or as in training.
int64_t WindowOf(const InferenceModel::Options& options, const RunState& state) {
  if (options.window > 0) return options.window;
  return std::min(state.sequence > 0 ? state.sequence : kDefaultWindow,
                  FactsOf(state.model).max_sequence);
}

// `options` lacks the precision.
absl::StatusOr<std::unique_ptr<Executable>> LoadModel(const Checkpoint& checkpoint,
                                                      RecordOptions options, const Backend& backend,
                                                      int threads) {
  const std::vector<StoredTensor>& tensors = checkpoint.manifest().tensors;
  const bool f64 = std::any_of(tensors.begin(), tensors.end(), [](const StoredTensor& tensor) {
    return tensor.kind == TensorKind::kParameter && tensor.dtype == DType::kF64;
  });
  options.precision = f64 ? Precision::F64() : Precision::F32();
  options.adapter = AdapterOf(checkpoint);
  Program program = RecordInference(*CreateModel(checkpoint.state().model), options);
  const MemoryPlan plan = PlanMemory(program);
  ASSIGN_OR_RETURN(std::unique_ptr<Executable> executable,
                   Executable::Create(std::move(program), plan, backend, threads, {}));
  RETURN_IF_ERROR(LoadSnapshot(checkpoint, LoadWhat::kParameters, *executable));
  executable->Run(Action::kPrepare);
  return executable;
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
    RecordOptions record = {.sequence = loaded.window_};
    if (use == Use::kGrowing && FactsOf(model).convolved_tokens == 0) {
      record = {.sequence = std::min(loaded.window_, GrowingText::kAtOnce),
                .cache = loaded.window_};
    }
    ASSIGN_OR_RETURN(loaded.executable_, LoadModel(checkpoint, record, backend, options.threads));
    return absl::OkStatus();
  };
  ASSIGN_OR_RETURN(const ChosenCheckpoint chosen, FindCheckpoint(options.checkpoint, load));
  for (const std::string& reason : chosen.refused) {
    LogWarning("checkpoint_refused", {{"reason", reason}});
  }
  const Program& program = loaded.executable_->program();
  loaded.columns_ = size_t(program.info(program.outputs.at("logits")).shape[1]);
  if (program.cache > 0) loaded.growing_.emplace(*loaded.executable_);
  return loaded;
}

void InferenceModel::Run(std::span<const int32_t> tokens) {
  CHECK(!growing_ && !tokens.empty() && int64_t(tokens.size()) <= window_) << tokens.size();
  // A token does not see those after it, because attention is causal.
  std::vector<int32_t> padded(static_cast<size_t>(window_));
  std::copy(tokens.begin(), tokens.end(), padded.begin());
  executable_->WriteInput("tokens", 0, padded);
  executable_->Run(Action::kForward);
  ReadLogits("logits");
}

std::span<const float> InferenceModel::After(std::span<const int32_t> text) {
  if (growing_) {
    const GrowingText::Place place = growing_->Read(text);
    ReadLogits(place.output);
    return Logits(size_t(place.row));
  }
  const size_t seen = std::min(text.size(), size_t(window_));
  Run(text.last(seen));
  return Logits(seen - 1);
}

void InferenceModel::ReadLogits(const std::string& output) {
  const ValueInfo& info = executable_->program().info(executable_->program().outputs.at(output));
  logits_.resize(size_t(info.shape.elements()));
  if (info.dtype != DType::kF64) {
    return executable_->ReadOutput(output, 0, logits_.data(), logits_.size() * sizeof(float));
  }
  std::vector<double> wide(logits_.size());
  executable_->ReadOutput(output, 0, wide.data(), wide.size() * sizeof(double));
  std::transform(wide.begin(), wide.end(), logits_.begin(), [](double x) { return float(x); });
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
