// Which parts of attention a rank computes when context ranks share out sequences in zig-zag order
// (kernels/sequence_part.h): its queries over the keys that it has in one turn.

#pragma once

#include <vector>

#include "kernels/attention_part.h"
#include "models/program/ops/ring.h"

namespace trainyard::ops {

// A part, and whether it is the first that its queries, and its keys, meet: then it overwrites
// results, and takes the sinks.
struct TurnPart {
  AttentionPart part;
  bool first;
};

// The parts of turn `turn`, on keys of the rank so many places before, in the order in which they
// must run; `rows` of each sequence are on each rank, and even. Parts of which no query sees a key
// are left out, so that there may be none. In turn 0 the first parts cover all rows. `documents`:
// what a query sees also depends on its position.
std::vector<TurnPart> PartsOf(const Ring& ring, int64_t turn, int64_t rows,
                              const AttentionMask& mask, bool documents);

// Query/key pairs of one head of one sequence that the mask lets through on this rank.
double PairsOn(const Ring& ring, int64_t rows, const AttentionMask& mask);

}  // namespace trainyard::ops
