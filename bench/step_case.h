// The training steps that are measured and predicted: a model, its batch and its precision, from
// the command line.

#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "models/arch/config.h"
#include "models/model.h"
#include "train/config/job_config.h"
#include "train/step/step_runner.h"

namespace trainyard::bench {

struct StepCase {
  // "byte", "124m", a preset, or the path of a file. The file is a config.json, or a preset with
  // overrides, as in scripts/gpu_check/layers/deepseek_v3.json.
  std::string model = "byte";
  std::string precision = "bf16";
  int64_t micro = 0,
          sequence = 0;    // 0: the case's own, which is 1 and 1024 of a preset and a file.
  int64_t layers = 0;      // 0: all of the model.
  int64_t accumulate = 1;  // Micro-batches of a step.
  int64_t recomputed_blocks = 0;
  bool deterministic = true;
  std::string optimizer = "adamw";  // With the standard options, but for its state.
  std::string state = "F32";        // As in a job: F32 or, of AdamW, COMPACT.
  bool offload = false;             // The optimizer's state is in the host's memory.
  int64_t lora = 0;                 // The rank of adapters of all linear layers; 0: none.
  bool nf4 = false;                 // Their base is in NF4.
  int64_t documents = 1;            // Of each sequence, of one length; they see only themselves.
};

// --case, --precision, --micro ...
void AddOptions(CLI::App& app, StepCase& step);

// A job of one device, and its model. INVALID_ARGUMENT: there is no such model, or the model's
// sequences are shorter.
struct ResolvedCase {
  JobConfig job;
  ModelConfig model;
};
absl::StatusOr<ResolvedCase> Resolve(const StepCase& step);

// What the model reads in a step: integers of few different ones, so that there is something to
// learn, normal reals, and where documents of packed sequences begin. Two runs of a case, on any
// device, have the same. `documents` as in StepCase.
StepBatch BatchOf(const JobConfig& job, const Model& model, int step, int64_t documents);

}  // namespace trainyard::bench
