// Which blocks of a model make up which part of a pipeline.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace trainyard {

// Blocks [begin, end) of 0 (embedding), 1..layers, layers + 1 (head and loss).
struct BlockRange {
  int64_t begin;
  int64_t end;

  bool operator==(const BlockRange&) const = default;
};

// One range for each of stages x chunks parts. Embedding and head count as one layer each, as in
// Megatron's published layouts (126 + 2 = 8 stages x 8 chunks x 2). The layers + 2 blocks are dealt
// evenly; where they don't divide, the first parts hold one more: the embedding costs next to no
// time, so that a single block too many lengthens no stage.
absl::StatusOr<std::vector<BlockRange>> DivideBlocks(int64_t layers, int parts);

}  // namespace trainyard
