// The parts of attention that a rank computes if context ranks divide sequences in zig-zag order
// (kernels/device/sequence_part.h). In each turn a rank computes its queries over the keys that it
// holds in that turn.

#pragma once

#include <vector>

#include "kernels/attention/attention_part.h"
#include "models/program/ops/ring.h"

namespace trainyard::ops {

// A part, and whether the part is the first for its queries and for its keys. A first part
// overwrites results, and takes the sinks.
struct TurnPart {
  AttentionPart part;
  bool first;
};

// Returns the parts of turn `turn` in the order in which they must run. In turn t a rank holds the
// keys of the rank t places before it. Each rank has `rows` rows of each sequence, an even number.
// Parts in which no query sees a key are left out, so the list may be empty. In turn 0 the first
// parts cover all rows. `by_position`: the parts say at which positions their rows stand, as
// documents and dropout need it.
std::vector<TurnPart> PartsOf(const Ring& ring, int64_t turn, int64_t rows,
                              const AttentionMask& mask, bool by_position);

// The number of query/key pairs that the mask allows on this rank, for one head of one sequence.
double PairsOn(const Ring& ring, int64_t rows, const AttentionMask& mask);

}  // namespace trainyard::ops
