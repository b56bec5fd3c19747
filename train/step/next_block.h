// Finds the blocks that a schedule's actions fetch under ZeRO FULL.

#pragma once

#include <vector>

#include "models/program/program.h"
#include "train/pipeline/schedule.h"

namespace trainyard {

// Returns the blocks whose weights an action fetches, in order; empty: none.
const std::vector<int>& FetchedBlocks(const Program& program, const PipelineAction& action);

// Returns, for each of a stage's actions, the block that is fetched first after the action. The
// last item, for the optimizer, is the first block that the next step fetches.
// BlockWindows::kNoBlock: none.
std::vector<int> NextBlocks(const Program& program, const std::vector<PipelineAction>& actions);

}  // namespace trainyard
