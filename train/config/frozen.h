// Which of a model's parameters a job trains, by the patterns of its spec: `frozen` names those
// that keep their values, or `trainable` all others.

#pragma once

#include "common/violations.h"
#include "models/arch/config.h"
#include "models/program/recorder.h"
#include "train/config/job_config.h"

namespace trainyard {

inline constexpr size_t kMaxPatterns = 64;

inline bool HasPatterns(const JobConfig& job) {
  return !job.frozen.empty() || !job.trainable.empty();
}

// Null where all are trained. `job` must be valid.
Recorder::IsFrozen FrozenBy(const JobConfig& job);

// The model FLOPs of a token, by the convention "exact" (models/arch/flops.h), without the
// gradients that nobody wants where parameters are frozen. `job` must be valid.
double TrainedFlopsPerToken(const JobConfig& job, const ModelConfig& model);

// Adds a violation for patterns of both kinds, for too many or too long ones, for each that matches
// no parameter (with the nearest name) or some experts of a layer alone, and where nothing is left
// to train. What depends on the model is not looked at where `model` is null; otherwise it must be
// valid.
void ValidateFrozen(const JobConfig& job, const ModelConfig* model, Violations& violations);

}  // namespace trainyard
