// The parameters of a model that a job trains, chosen by the patterns of its spec. `frozen` names
// those that keep their values, or `trainable` names all others. A job with an adapter trains the
// adapter (adapter.h).

#pragma once

#include <vector>

#include "common/violations.h"
#include "models/arch/config.h"
#include "models/arch/flops.h"
#include "models/program/recorder.h"
#include "train/config/job_config.h"

namespace trainyard {

// Whether the job leaves any parameters as they are.
inline bool Freezes(const JobConfig& job) {
  return !job.frozen.empty() || !job.trainable.empty() || job.adapter;
}

// Null if all parameters are trained. `job` must be valid.
Recorder::IsFrozen FrozenBy(const JobConfig& job);

// The parameters that the job trains, in the order in which they are first used. `job` must be
// valid.
std::vector<ParameterSpec> TrainedParameters(const JobConfig& job, const ModelConfig& model);

// The model FLOPs of a token, by the convention "exact" (models/arch/flops.h), without the
// gradients that frozen parameters do not need. `job` must be valid.
double TrainedFlopsPerToken(const JobConfig& job, const ModelConfig& model);

// The same for each query-key pair of attention, by its mask.
std::vector<PairFlops> TrainedFlopsPerPair(const JobConfig& job, const ModelConfig& model);

// Adds a violation for patterns of both kinds, for too many or too long patterns, for each pattern
// that matches no parameter (with the nearest name) or only some experts of a layer, and if no
// parameter is left to train. `model` must be valid, or null: then the rules that depend on the
// model are not checked.
void ValidateFrozen(const JobConfig& job, const ModelConfig* model, Violations& violations);

}  // namespace trainyard
