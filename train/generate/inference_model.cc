#include "train/generate/inference_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/host_memory.h"
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
// Memory of a GPU that is left for the scratch memory of kernels and of NVIDIA's libraries.
constexpr size_t kLeftOnGpu = size_t{1} << 30;

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
  return absl::OkStatus();
}

// The tokens asked for, or as in training.
int64_t WindowOf(const InferenceModel::Options& options, const RunState& state) {
  if (options.window > 0) return options.window;
  return std::min(state.sequence > 0 ? state.sequence : kDefaultWindow,
                  FactsOf(state.model).max_sequence);
}

// What is nobody's choice leaves half of the memory to other programs.
uint64_t MemoryOf(const InferenceModel::Options& options) {
  if (options.memory_bytes > 0) return options.memory_bytes;
  return AvailableMemoryBytes() / (options.fewer_texts ? 2 : 1);
}

// Returns a program of options.texts texts, or of as many as fit into the memory.
absl::StatusOr<Program> FitTexts(const InferenceModel::Options& options, const Model& model,
                                 const RecordOptions& record, uint64_t memory) {
  const auto record_for = [&](int64_t texts) {
    RecordOptions several = record;
    several.cached_texts = texts;
    return RecordInference(model, several);
  };
  Program program = record_for(options.texts);
  if (options.texts == 1) return program;
  const auto bytes = [&](int64_t texts) { return PlanMemory(record_for(texts)).total_bytes(); };
  const size_t all = PlanMemory(program).total_bytes();
  if (all <= memory) return program;
  const size_t one = bytes(1), each = (all - one) / size_t(options.texts - 1);
  const int64_t most = memory > one ? 1 + int64_t((memory - one) / std::max<size_t>(1, each)) : 1;
  if (options.fewer_texts) return record_for(most);
  return absl::FailedPreconditionError(absl::StrCat(
      "batch: wanted at most ", most, " texts at once for ", FormatBytes(double(memory)),
      " of memory, since the model takes ", FormatBytes(double(one)), " with one text, and ",
      FormatBytes(double(each)), " for each further one; found ", options.texts,
      "; a shorter --window takes less"));
}

bool HasF64(const Manifest& manifest) {
  const std::vector<StoredTensor>& tensors = manifest.tensors;
  return std::any_of(tensors.begin(), tensors.end(), [](const StoredTensor& tensor) {
    return tensor.kind == TensorKind::kParameter && tensor.dtype == DType::kF64;
  });
}

// `record` lacks the precision.
absl::StatusOr<std::unique_ptr<Executable>> LoadModel(const Checkpoint& checkpoint,
                                                      RecordOptions record, bool narrow,
                                                      const Backend& backend,
                                                      const InferenceModel::Options& options) {
  // An adapter that was imported in f32 may stand beside a base in f64.
  const bool f64 =
      HasF64(checkpoint.manifest()) || (checkpoint.base() != nullptr && HasF64(*checkpoint.base()));
  record.precision = f64 ? Precision::F64() : Precision::F32();
  record.adapter = AdapterOf(checkpoint);
  // Norms of an adapted weight are of numbers as wide as its adapter's.
  if (narrow && !f64 && !record.adapter.magnitudes) {
    record.precision = record.precision.WithNarrowWeights();
  }
  const bool gpu = backend.device() == DeviceKind::kCuda;
  if (gpu && f64) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.checkpoint, ": wanted weights in f32 or bf16 for a GPU, found f64; --device cpu"));
  }
  const uint64_t memory = gpu ? std::numeric_limits<uint64_t>::max() : MemoryOf(options);
  ASSIGN_OR_RETURN(Program program,
                   FitTexts(options, *CreateModel(checkpoint.state().model), record, memory));
  const MemoryPlan plan = PlanMemory(program);
  absl::StatusOr<std::unique_ptr<Executable>> executable =
      Executable::Create(std::move(program), plan, backend, options.threads, {});
  if (gpu) {
    // How much memory a GPU has left is seen when it is asked for some.
    const bool fits = executable.ok() && backend.Allocate(kLeftOnGpu).ok();
    if (!fits && options.fewer_texts && options.texts > 1) {
      InferenceModel::Options half = options;
      half.texts = options.texts / 2;
      executable = absl::CancelledError();  // Frees its memory.
      return LoadModel(checkpoint, record, narrow, backend, half);
    }
    if (!fits) {
      return absl::FailedPreconditionError(absl::StrCat(
          "batch: wanted fewer texts at once, a shorter --window or a GPU with more memory, since ",
          options.texts, options.texts == 1 ? " text takes " : " texts take ",
          FormatBytes(double(plan.total_bytes())), " and ", FormatBytes(double(kLeftOnGpu)),
          " beside it, which the GPU does not have"));
    }
  }
  RETURN_IF_ERROR(executable.status());
  RETURN_IF_ERROR(LoadSnapshot(checkpoint, LoadWhat::kParameters, **executable));
  (*executable)->Run(Action::kPrepare);
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
    if (use == Use::kGrowing) {
      record = {.sequence = std::min(loaded.window_, GrowingTexts::kAtOnce),
                .cache = loaded.window_};
    }
    const bool narrow = use == Use::kGrowing && checkpoint.state().bf16_weights &&
                        backend.device() == DeviceKind::kCpu;
    ASSIGN_OR_RETURN(loaded.executable_, LoadModel(checkpoint, record, narrow, backend, options));
    return absl::OkStatus();
  };
  ASSIGN_OR_RETURN(const ChosenCheckpoint chosen, FindCheckpoint(options.checkpoint, load));
  for (const std::string& reason : chosen.refused) {
    LogWarning("checkpoint_refused", {{"reason", reason}});
  }
  const Program& program = loaded.executable_->program();
  loaded.columns_ = size_t(program.info(program.outputs.at("logits")).shape[1]);
  loaded.texts_ = size_t(program.cached_texts);
  if (program.cache > 0) loaded.growing_.emplace(*loaded.executable_);
  return loaded;
}

void InferenceModel::Run(std::span<const int32_t> tokens) {
  CHECK(!growing_ && texts_ == 1 && !tokens.empty() && int64_t(tokens.size()) <= window_)
      << tokens.size();
  // A token does not see those after it, because attention is causal.
  std::vector<int32_t> padded(static_cast<size_t>(window_));
  std::copy(tokens.begin(), tokens.end(), padded.begin());
  executable_->WriteInput("tokens", 0, padded);
  executable_->Run(Action::kForward);
  ReadLogits("logits");
}

void InferenceModel::Read(std::span<const std::span<const int32_t>> texts) {
  after_.resize(texts_ * columns_);
  is_read_.assign(texts_, false);
  CHECK(growing_.has_value()) << "loaded to read whole windows";
  growing_->Read(texts, [&](const GrowingTexts::Rows& rows) {
    ReadLogits(rows.output);
    for (const auto& [place, row] : rows.of_places) Keep(place, row);
  });
}

void InferenceModel::Keep(size_t place, int64_t row) {
  std::copy_n(logits_.begin() + row * int64_t(columns_), columns_,
              after_.begin() + ptrdiff_t(place * columns_));
  is_read_[place] = true;
}

std::span<const float> InferenceModel::After(size_t place) const {
  CHECK(is_read_[place]) << "place " << place;
  return {&after_[place * columns_], vocab_};
}

void InferenceModel::Forget(size_t place) {
  CHECK(growing_.has_value()) << "loaded to read whole windows";
  growing_->Forget(place);
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
