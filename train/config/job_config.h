// A training job's configuration: the typed form of `JobSpec` (proto/trainyard/v1/job_spec.proto),
// with every default applied. Start here. parse.h makes a JobConfig from YAML or JSON text, and
// validate.h lists everything that is wrong with one.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/declared.h"
#include "kernels/loss/preference.h"
#include "models/arch/config.h"
#include "models/parallel/context_exchange.h"
#include "models/parallel/zero.h"
#include "models/program/optimizer/optimizer.h"
#include "train/data/source.h"
#include "train/pipeline/schedule.h"

namespace trainyard {

enum class PrecisionName {  // See precision.h.
  kBF16,
  kF32,
  kF64,
  kFP8Delayed,
  kFP8Current,
  kFP8Blockwise,
  kFP8Rowwise
};
const char* Name(PrecisionName precision);  // "BF16", "F32", "F64", "FP8_DELAYED", ...

// Exactly one of preset and architecture must be given; overrides are legal with a preset.
// resolve_model.h makes the complete model.
struct ModelChoice {
  std::string preset = {};
  std::optional<GivenModel> overrides = {};
  std::optional<GivenModel> architecture = {};
  // `import` in a spec: the Hugging Face directory from which the job takes its first parameters.
  // May be "". `architecture` must be what its config.json says; only ranks can compare the two.
  std::string import_path = {};
  // Keys of that config.json that the user says change nothing (ConfigFromHf).
  std::vector<std::string> ignore_keys = {};
};

// The axes over which the experts of a layer are divided.
enum class ExpertSplit { kExpert, kExpertTensor, kExpertTensorContext };
const char* Name(ExpertSplit split);  // "EXPERT", "EXPERT_TENSOR", "EXPERT_TENSOR_CONTEXT".

// Sizes of the axes (common/job_axes.h). The data axis is `devices` divided by the other axes.
struct ParallelismConfig {
  int64_t tensor = Standard<int64_t>("parallelism.tensor");
  int64_t pipeline = Standard<int64_t>("parallelism.pipeline");
  int64_t virtual_pipeline = Standard<int64_t>("parallelism.virtual_pipeline");
  int64_t context = Standard<int64_t>("parallelism.context");
  int64_t expert = Standard<int64_t>("parallelism.expert");  // Divides the data axis.
  ExpertSplit expert_split = ExpertSplit::kExpertTensor;
  Zero zero = Zero::kOptimizer;
  Reduction reduction = Reduction::kF32;
  ContextExchange context_exchange = ContextExchange::kRing;
  const ScheduleKind* schedule = nullptr;  // Null: DefaultSchedule.

  // The schedule that runs. With one stage there is no bubble that halves of backward could fill.
  const ScheduleKind* schedule_kind() const {
    const bool nothing_to_fill = pipeline == 1 && schedule != nullptr && schedule->split_backward;
    return schedule == nullptr || nothing_to_fill ? DefaultSchedule(virtual_pipeline) : schedule;
  }
};

// Activations that backward computes again instead of keeping them.
struct RecomputeConfig {
  int64_t blocks = 0;  // All activations of this many first layers of each pipeline stage.
  bool norms_and_activations = false;
};

// For the precisions in FP8 alone.
struct Fp8Config {
  int64_t first_layers_in_bf16 = 0;
  int64_t last_layers_in_bf16 = 0;
};

struct BatchConfig {
  int64_t global = 0;    // Sequences per step on all ranks: micro x accumulation x data ranks.
  int64_t micro = 0;     // Sequences that a rank computes at once.
  int64_t sequence = 0;  // Tokens of one sequence.
};

enum class ScheduleShape { kConstant, kCosine, kLinear, kWsd };  // wsd: warm-up, stable, decay.
const char* Name(ScheduleShape shape);  // "constant", "cosine", "linear", "wsd".
// How the rate falls at the end of a wsd schedule (train/trainer/learning_rate.h).
enum class DecayStyle { kLinear, kCosine, kExponential, kMinusSqrt };
struct ScheduleConfig {
  ScheduleShape shape = ScheduleShape::kConstant;
  int64_t warmup_steps = 0;         // Linear from 0.
  std::optional<double> min_ratio;  // Final rate / peak rate; not for constant. See MinRatio.
  int64_t decay_steps = 0;          // For wsd alone: the last steps, in which the rate falls.
  DecayStyle decay_style = DecayStyle::kExponential;
};

struct OptimizerConfig {
  OptimizerOptions options;  // The optimizer, and its section: "adamw".
  ScheduleConfig schedule;
  // Limit of the global gradient norm; 0: no clipping.
  double clip_norm = Standard<double>("optimizer.clip_norm");
  bool offload = false;  // State that only the optimizer reads lies in the memory of a GPU's host.
};

// What the model writes after each validation.
struct GenerationConfig {
  std::vector<std::string> prompts = {};
  int64_t tokens = Standard<int64_t>("validation.generate.tokens");  // Of each.
  double temperature = Standard<double>("validation.generate.temperature");
  std::string tokenizer = {};  // A file or directory; "": the tokens are bytes.
};

struct ValidationConfig {
  int64_t every_steps = 0;  // The last step is always measured.
  // Global batches per measurement. 0: as many as have every sample that is held out, once
  // (SourceFacts::ends).
  int64_t batches = 0;
  std::optional<GenerationConfig> generate = {};  // Absent: nothing.
};

struct CheckpointConfig {
  std::string directory;
  int64_t every_steps = 0;                              // 0: only at the end.
  int64_t keep = Standard<int64_t>("checkpoint.keep");  // Number of good checkpoints kept.
  int64_t keep_best = 0;  // Besides these: how many with the lowest validation loss.
};

// The steps for which some ranks write a trace.
struct ProfileConfig {
  std::string directory = {};
  int64_t start_step = 0;  // From 1.
  int64_t steps = Standard<int64_t>("profile.steps");
  std::vector<int64_t> ranks = {};  // Empty: rank 0.
  bool nccl_trace = false;          // NCCL's own log, for the whole attempt.
};

// The format of the frozen weights of linear layers and experts.
enum class LoraBase : uint8_t { kAsComputed, kNf4 };

// Low-rank adapters, with PEFT's defaults (adapter.h).
struct LoraConfig {
  int64_t rank = Standard<int64_t>("adapter.lora.rank");
  double alpha = Standard<double>("adapter.lora.alpha");  // Adapters are scaled by alpha / rank.
  std::vector<std::string> targets = {};  // Patterns of layers' names; none: kAllLinear.
  bool rslora = false;                    // Scaled by alpha / sqrt(rank) instead.
  bool dora = false;                      // The norms of the weights' rows are trained, too.
  LoraBase base = LoraBase::kAsComputed;
  double dropout = 0;  // Probability with which training drops an element of an adapter's input.
  std::vector<std::string> modules_to_save = {};  // Patterns; trained as a whole.
};
// What a job trains beside a base that stays as it is.
struct AdapterConfig {
  std::optional<LoraConfig> lora;
};

// How a job learns from pairs of answers.
struct PreferenceConfig {
  PreferenceMethod method = PreferenceMethod::kDpo;
  double beta = Standard<double>("preference.beta");
};

// The run that a job continues in its checkpoint directory (continued_run.h).
struct ContinuesConfig {
  std::string job;                 // The directory's owner so far.
  int64_t epoch = 0;               // The newest attempt in the directory; 0: not known.
  std::vector<std::string> allow;  // Fields that may differ although samples are then read anew.
};

struct JobConfig {
  std::string name;
  ModelChoice model;
  PrecisionName precision = PrecisionName::kBF16;
  std::optional<Fp8Config> fp8;  // Absent: all layers are in the precision.
  // False: GPUs may add some gradients in any order.
  bool deterministic = Standard<bool>("deterministic");
  ParallelismConfig parallelism;
  RecomputeConfig recompute;
  BatchConfig batch;
  DataConfig data;
  OptimizerConfig optimizer;
  int64_t steps = 0;                               // Optimizer steps in all.
  std::optional<ValidationConfig> validation;      // Absent: no validation.
  std::optional<CheckpointConfig> checkpoint;      // Absent: no checkpoints, and no resume.
  std::optional<ProfileConfig> profile;            // Absent: no traces.
  int64_t devices = Standard<int64_t>("devices");  // Number of ranks.
  uint64_t seed = 0;
  int64_t priority = 0;
  // The job starts from the parameters of this checkpoint, or of the newest good one in this
  // checkpoint directory of another job. May be "".
  std::string init_from;
  bool init_from_subset = false;  // What the checkpoint lacks keeps its initial values.
  // Patterns of parameter names (name_pattern.h): those that are not trained, or all that are
  // trained. Only one of the two may be given. If both are empty, all parameters are trained.
  std::vector<std::string> frozen;
  std::vector<std::string> trainable;
  std::optional<AdapterConfig> adapter;  // Absent: the parameters themselves are trained.
  // Absent: every target that counts is learnt.
  std::optional<PreferenceConfig> preference;
  std::optional<ContinuesConfig> continues;  // Absent: the job begins at step 1.
  int64_t max_restarts = Standard<int64_t>("max_restarts");
  std::map<std::string, std::string> labels;
};

// Chats without a tokenizer are encoded by that of the imported model, if there is one.
void TakeTokenizerOfImport(JobConfig& job);

// Values that follow from a valid config. They CHECK that sizes divide; Validate reports where they
// do not.
int64_t DataParallel(const JobConfig& job);       // Size of the data axis.
int64_t AccumulationSteps(const JobConfig& job);  // Micro-batches of a rank in a step.
double MinRatio(const ScheduleConfig& schedule);  // 1 for constant.

}  // namespace trainyard
