#include "train/generate/generate.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/rng.h"
#include "common/status_macros.h"
#include "models/arch/registry.h"
#include "models/model.h"
#include "models/program/executable.h"
#include "train/checkpoint/load.h"
#include "train/hf/tokenizer_of.h"
#include "train/step/snapshot.h"
#include "train/tokenizer/text_stream.h"

namespace trainyard {
namespace {

constexpr int64_t kDefaultWindow = 256;  // For checkpoints without this number.

absl::Status Validate(const GenerateOptions& options, const ModelConfig& model) {
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
  if (options.tokens < 0 || options.tokens > kMaxGeneratedTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokens: wanted 0 to ", kMaxGeneratedTokens, ", found ", options.tokens));
  }
  if (!(options.temperature >= 0 && options.temperature <= kMaxTemperature)) {  // Or NaN.
    return absl::InvalidArgumentError(absl::StrCat("temperature: wanted 0 to ", kMaxTemperature,
                                                   ", found ", options.temperature));
  }
  if (options.window < 0 || options.window > facts.max_sequence) {
    return absl::InvalidArgumentError(absl::StrCat("window: wanted 1 to ", facts.max_sequence,
                                                   " tokens, found ", options.window));
  }
  return absl::OkStatus();
}

// The tokens asked for, or as in training.
int64_t WindowOf(const GenerateOptions& options, const RunState& state) {
  if (options.window > 0) return options.window;
  return std::min(state.sequence > 0 ? state.sequence : kDefaultWindow,
                  FactsOf(state.model).max_sequence);
}

absl::StatusOr<std::unique_ptr<Executable>> LoadModel(const Checkpoint& checkpoint, int64_t window,
                                                      const Backend& backend, int threads) {
  // Weights are widened to f32; weights in f64 stay in f64.
  const std::vector<StoredTensor>& tensors = checkpoint.manifest().tensors;
  const bool f64 = std::any_of(tensors.begin(), tensors.end(), [](const StoredTensor& tensor) {
    return tensor.kind == TensorKind::kParameter && tensor.dtype == DType::kF64;
  });
  Program program =
      RecordInference(*CreateModel(checkpoint.state().model),
                      {.precision = f64 ? Precision::F64() : Precision::F32(), .sequence = window});
  const MemoryPlan plan = PlanMemory(program);
  ASSIGN_OR_RETURN(std::unique_ptr<Executable> executable,
                   Executable::Create(std::move(program), plan, backend, threads, {}));
  RETURN_IF_ERROR(LoadSnapshot(checkpoint, LoadWhat::kParameters, *executable));
  executable->Run(Action::kPrepare);
  return executable;
}

void ReadLogits(Executable& executable, std::vector<float>& logits) {
  if (executable.program().precision.product({.kind = ProductKind::kHead}).result != DType::kF64) {
    return executable.ReadOutput("logits", 0, logits.data(), logits.size() * sizeof(float));
  }
  std::vector<double> wide(logits.size());
  executable.ReadOutput("logits", 0, wide.data(), wide.size() * sizeof(double));
  std::transform(wide.begin(), wide.end(), logits.begin(), [](double x) { return float(x); });
}

}  // namespace

int64_t SampleToken(std::span<const float> logits, double temperature, double u) {
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (temperature == 0) return largest - logits.begin();
  std::vector<double> weights;
  double sum = 0;
  for (float logit : logits) {
    weights.push_back(std::exp((double(logit) - double(*largest)) / temperature));
    sum += weights.back();
  }
  double left = u * sum;
  for (size_t i = 0; i < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0) return int64_t(i);
  }
  return largest - logits.begin();  // Rounding has left a small rest.
}

absl::Status Generate(const GenerateOptions& options, const Backend& backend,
                      const std::function<void(absl::string_view)>& write) {
  std::unique_ptr<Executable> executable;
  std::unique_ptr<Tokenizer> tokenizer;
  int64_t window = 0;
  const auto use = [&](const Checkpoint& checkpoint) -> absl::Status {
    const ModelConfig& model = checkpoint.state().model;
    RETURN_IF_ERROR(Validate(options, model));
    ASSIGN_OR_RETURN(tokenizer, TokenizerOf(checkpoint.path(), FactsOf(model).vocab));
    window = WindowOf(options, checkpoint.state());
    ASSIGN_OR_RETURN(executable, LoadModel(checkpoint, window, backend, options.threads));
    return absl::OkStatus();
  };
  ASSIGN_OR_RETURN(const ChosenCheckpoint chosen, FindCheckpoint(options.checkpoint, use));
  for (const std::string& reason : chosen.refused) {
    LogWarning("checkpoint_refused", {{"reason", reason}});
  }

  // Without a prompt, the text begins after a line break.
  const std::string prompt = options.prompt.empty() ? "\n" : options.prompt;
  std::vector<int32_t> text = tokenizer->prefix();
  RETURN_IF_ERROR(tokenizer->NewEncoder()->Encode(prompt, text));
  std::vector<int32_t> tokens(static_cast<size_t>(window));
  const Program& program = executable->program();
  // Columns after the tokenizer's ids are padding.
  const size_t columns = size_t(program.info(program.outputs.at("logits")).shape[1]);
  std::vector<float> logits(size_t(window) * columns);
  TextStream readable(*tokenizer, text);
  for (int64_t i = 0; i < options.tokens; ++i) {
    // The last token of the text does not see the tokens after it, because attention is causal.
    const size_t seen = std::min(text.size(), tokens.size());
    std::fill(tokens.begin(), tokens.end(), 0);
    std::copy(text.end() - std::ptrdiff_t(seen), text.end(), tokens.begin());
    executable->WriteInput("tokens", 0, tokens);
    executable->Run(Action::kForward);
    ReadLogits(*executable, logits);
    const std::span<const float> last(&logits[(seen - 1) * columns], size_t(tokenizer->vocab()));
    const double u = Uniform(options.seed, HashName("generate"), uint64_t(i));
    text.push_back(int32_t(SampleToken(last, options.temperature, u)));
    ASSIGN_OR_RETURN(const std::string more, readable.Add(text.back()));
    write(more);
  }
  ASSIGN_OR_RETURN(const std::string rest, readable.End());
  write(rest);
  return absl::OkStatus();
}

}  // namespace trainyard
