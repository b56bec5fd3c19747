// Model FLOPs per token as the publishers of performance tables count them. A published TFLOP/s or
// MFU means nothing unless its convention is known. The conventions other than kExact are the
// formulas that reproduce the tables, slips of the publishers included; Slips() names these.
//
// Sources: the performance pages of NeMo 2.0 (24.07), NeMo AutoModel, and the DGX Cloud recipes for
// Llama 3.1 and Nemotron4 (v25.04); num_floating_point_operations of Megatron-LM.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "models/arch/flops.h"

namespace trainyard {

enum class FlopsConvention {
  kExact,          // The recorded program (flops.h).
  kNemo20,         // Full attention: every query with every key.
  kAutoModel,      // Causal: half of full attention.
  kDgxcLlama31,    // Full attention.
  kDgxcNemotron4,  // Full attention, as if every head had its own keys, and ffn = 4 hidden.
  kMegatron,       // Causal: half of full attention.
};

// What is trained: all parameters on full sequences, all on packs of short ones, or adapters of low
// rank beside frozen parameters.
enum class FlopsTask { kPretrain, kSft, kLora };

// "exact", "nemo20", "automodel", "dgxc-llama31", "dgxc-nemotron4", "megatron".
absl::string_view Name(FlopsConvention convention);
absl::StatusOr<FlopsConvention> ParseFlopsConvention(absl::string_view name);
std::vector<std::string> FlopsConventionNames();
absl::StatusOr<FlopsTask> ParseFlopsTask(absl::string_view name);  // "pretrain", "sft", "lora".
std::vector<std::string> FlopsTaskNames();

// OK if the convention has a formula for such models and for the task.
absl::Status CheckConvention(const ModelConfig& config, FlopsConvention convention, FlopsTask task);

// CHECKs what CheckConvention and the other FlopsPerToken do.
Flops FlopsPerToken(const ModelConfig& config, int64_t sequence, FlopsConvention convention,
                    FlopsTask task = FlopsTask::kPretrain);

// In which ways the publisher's count differs from what the model computes, a sentence each.
std::vector<std::string> Slips(const ModelConfig& config, int64_t sequence,
                               FlopsConvention convention, FlopsTask task = FlopsTask::kPretrain);

// The peak of an H100 per second to which the convention's MFU are relative. Pages print MFU for
// BF16 and FP8 alone.
double PublishedPeak(FlopsConvention convention, bool fp8);

// How long training takes by the rule of the convention's page: a number of tokens at a run's speed
// on a number of devices.
struct TrainingTime {
  double tokens = 0;
  int64_t devices = 0;  // 0: those of the run.
};
// Absent: the page has no such column.
std::optional<TrainingTime> PublishedTrainingTime(FlopsConvention convention, FlopsTask task);

// The size of a checkpoint by the publishers' rule: weights of 2 bytes, and master weights and both
// moments of 4.
inline constexpr int64_t kPublishedCheckpointBytes = 14;  // Of a parameter.

}  // namespace trainyard
