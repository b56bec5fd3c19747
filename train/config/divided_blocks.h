// Blocks of numbers with one scale, which ranks must not divide: another layout would have other
// blocks than one rank has. Formats of products have such blocks, and weights in NF4.

#pragma once

#include <string>

#include "common/violations.h"
#include "models/arch/config.h"
#include "train/config/job_config.h"

namespace trainyard {

// Whether ranks that hold the same key or value compute a part of its gradient each, and would
// round the parts to 8 bits before they are added up.
bool RoundsParts(const JobConfig& job, const ModelConfig& model);

// The nearest smaller degree of tensor parallelism, of those that divide the job's, that divides no
// block and rounds no parts; "" if there is none.
std::string NearestTensorDegree(const JobConfig& job, const ModelConfig& model);

// Adds a violation, with the nearest legal value, for each field whose value would divide blocks.
// The job must have no other violation, and `model` must be valid.
void CheckBlocks(const JobConfig& job, const ModelConfig& model, Violations& violations);

}  // namespace trainyard
