// What a model writes after validations (validation.generate).

#pragma once

#include <cstddef>

#include "common/violations.h"
#include "models/arch/config.h"
#include "models/program/input.h"
#include "train/config/job_config.h"

namespace trainyard {

inline constexpr size_t kMostPrompts = size_t(kMostLastRows);
inline constexpr size_t kMostPromptBytes = 512;      // Of one prompt.
inline constexpr size_t kMostGeneratedBytes = 1024;  // Of one text; what is longer is cut.

// Prompts without a tokenizer are encoded by that of the job's chats, or of the imported model.
void TakeTokenizerForPrompts(JobConfig& job);

// Adds a violation for each prompt that is empty or too long, for too many or none, for a model
// that reads no text, and for a tokenizer that is missing, or not of the data. `model`: null if it
// is not known.
void ValidateGeneration(const JobConfig& job, const ModelConfig* model, Violations& violations);

}  // namespace trainyard
