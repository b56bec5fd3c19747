// Divides the blocks of a model into the parts of a pipeline.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace trainyard {

// Blocks [begin, end). Block 0 is the embedding, 1..layers are the layers, and layers + 1 is the
// head with the loss.
struct BlockRange {
  int64_t begin;
  int64_t end;

  bool operator==(const BlockRange&) const = default;
};

// Returns one range for each of the stages x chunks parts. Embedding and head count as one layer
// each, as in Megatron's published layouts (126 + 2 = 8 stages x 8 chunks x 2). The layers + 2
// blocks are divided evenly. If `parts` does not divide them, the first parts have one block more:
// the embedding takes almost no time, so a single additional block makes no stage slower.
absl::StatusOr<std::vector<BlockRange>> DivideBlocks(int64_t layers, int parts);

}  // namespace trainyard
