// What a schedule's actions want of ZeRO FULL's weights.

#pragma once

#include <vector>

#include "models/program/program.h"
#include "train/pipeline/schedule.h"

namespace trainyard {

// The blocks whose weights an action fetches, in that order; empty: none.
const std::vector<int>& FetchedBlocks(const Program& program, const PipelineAction& action);

// For each of a stage's actions the block that is fetched first thereafter, and for the optimizer,
// last, that of the next step; BlockWindows::kNoBlock: none.
std::vector<int> NextBlocks(const Program& program, const std::vector<PipelineAction>& actions);

}  // namespace trainyard
