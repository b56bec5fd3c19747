// The adapters that a job trains beside its base (`adapter` in a spec), and what else of the base
// it trains.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/declared.h"
#include "common/violations.h"
#include "models/arch/config.h"
#include "models/program/low_rank.h"
#include "models/program/recorder.h"
#include "train/config/job_config.h"

namespace trainyard {

inline constexpr char kAllLinear[] = "all-linear";
inline constexpr int64_t kMaxLoraRank = DeclaredAt("adapter.lora.rank").whole->most;

// Whether the job keeps frozen weights in NF4.
bool IsBaseInNf4(const JobConfig& job);

// Nullopt if the job has no adapter. `job` must be valid.
std::optional<LoraNumbers> LoraNumbersOf(const JobConfig& job);

// Of no rank if the job has no adapter. `job` must be valid.
LowRank AdapterOf(const JobConfig& job);

// Which parameters a job with an adapter leaves as they are: all of the base, but those of
// modules_to_save. `job` must be valid.
Recorder::IsFrozen FrozenBeside(const LoraConfig& lora);

// Adds a violation for each pattern that matches no layer or module (with the nearest name), for a
// job without a base whose data are not synthetic, and for fields that say once more what is
// trained. `model` must be valid, or null: then the rules that depend on the model are not checked.
void ValidateAdapter(const JobConfig& job, const ModelConfig* model, Violations& violations);

}  // namespace trainyard
